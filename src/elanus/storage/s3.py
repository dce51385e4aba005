"""Objects in a bucket, on S3 or a compatible store, through obstore.

The URL is that of `elanus.storage.s3_source`. Values missing in it are taken from the usual sources:
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_REGION`` and
``AWS_ENDPOINT_URL`` in the environment, the shared credentials file, the role of the machine. ``credentials``
names a file in the format of the shared credentials file. No secret is in the URL, nor in a pickled store:
the process that opens it looks the secrets up where it runs.

Small objects are put on condition that their name is not taken. A large object is uploaded in parts, which
not all stores allow to be conditional. Its name is looked up before, so two writers of the same large name
at the same moment do not notice each other. (OpenStack Swift also looks before it writes small objects.)
Nothing depends on this: names of data files are unique to the attempt that writes them.

A store that is restarted or busy refuses requests for seconds. So each request is repeated for
`_PATIENCE_S`, by the library if it can. It does not repeat requests that are not idempotent, nor a listing
whose body broke off: these are repeated here. A conditional put is not idempotent: if its answer is lost, a
repetition finds the name taken by the first one. A name that is then found taken is this writer's if the
content is the same. A listing continues behind the last object that it has returned.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store as RemoteStore

from elanus.core.batches import batched
from elanus.core.errors import DiskFull, ElanusError, InvalidParameter, StoreAway, StoreRefused
from elanus.storage.failures import FailureRecord
from elanus.storage.local import disk_full_reported
from elanus.storage.parallel import for_each
from elanus.storage.paths import checked_path
from elanus.storage.port import ObjectExists, ObjectInfo, ObjectMissing, StoreFailures
from elanus.storage.s3_source import S3Source

PART_BYTES = 16 * 1024 * 1024
_PATIENCE_S = 20.0
"""How long a request is repeated while the store does not answer it: longer than a restart takes."""
_BRIEF_PATIENCE_S = 2.0
"""The same at the start of a process, whose operator waits to read that an address is wrong; and how long the
library repeats deletions, which a store without requests for many answers like a broken one."""
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 3.0
_RETRIES_MAX = 1000
"""Not a limit of its own: `_PATIENCE_S` is over first."""
_TIMEOUT_S = 60
_CONNECT_TIMEOUT_S = 5
_LIST_CHUNK = 1000
_DELETES_MAX = 1000
"""Objects that one request of S3 deletes at most."""
_NO_BULK = ("501 Not Implemented", "NotImplemented", "405 Method Not Allowed", "MethodNotAllowed")
"""Answers of compatible stores that delete one object in a request only."""
_COPY_BYTES = 8 * 1024 * 1024
_REFUSALS = (
    "403 Forbidden",
    "401 Unauthorized",
    "AccessDenied",
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
)


class S3Store:
    """Implements `elanus.storage.port.ReportingStore`. Methods raise `StoreAway` when the store does not
    answer, and `StoreRefused` when it refuses the credentials or has no such bucket."""

    calls_at_once = 32
    writes_at_once = 32

    def __init__(self, url: str) -> None:
        """Opens no connection. Raises `InvalidParameter`."""
        source = S3Source.parse(url)
        self.url = source.url
        self._bucket = source.bucket
        self._store = _open(source)
        self._brief = _open(source, _BRIEF_PATIENCE_S)
        self._single_deletes = _open(source, _BRIEF_PATIENCE_S, disable_bulk_delete=True)
        self._has_bulk_deletes = True
        self._failures = FailureRecord()

    def __reduce__(self) -> tuple[type[S3Store], tuple[str]]:
        return S3Store, (self.url,)

    def check(self) -> None:
        """Make a request, so that a wrong bucket or secret is detected before the first object is used."""
        with self._errors(""):
            next(iter(obstore.list(self._brief, chunk_size=1)), None)

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        checked_path(path)
        unanswered = False
        tries = _Tries()
        while True:
            try:
                with self._errors(path):
                    obstore.put(
                        self._store, path, memoryview(data).cast("B"), mode="create", use_multipart=False
                    )
                return
            except ObjectExists:
                if unanswered and self.get(path).equals(pa.py_buffer(data)):
                    return
                raise
            except StoreAway:
                unanswered = True
                if not tries.another():
                    raise

    def put_file(self, path: str, source: Path) -> None:
        if source.stat().st_size <= PART_BYTES:
            self.put(path, source.read_bytes())
        else:
            with contextlib.suppress(ObjectMissing):
                self.head(path)
                raise ObjectExists(path)
            self._upload(path, source)
        source.unlink()

    def _upload(self, path: str, source: Path) -> None:
        """Upload in parts. If the answer to the last request is lost, its repetition finds no such upload: a
        file that is there then, of this size and under a name that was free, is this one."""
        try:
            with self._errors(path):
                obstore.put(self._store, path, source, chunk_size=PART_BYTES, use_multipart=True)
        except (ObjectMissing, StoreAway) as error:
            with contextlib.suppress(ObjectMissing):
                if self.head(path).size_bytes == source.stat().st_size:
                    return
            raise StoreAway(f"the object store did not take the upload of {path}: {error}") from error

    def get(self, path: str) -> pa.Buffer:
        checked_path(path)
        with self._errors(path):
            return pa.py_buffer(obstore.get(self._store, path).bytes())

    def open(self, path: str) -> pa.NativeFile:
        size_bytes = self.head(path).size_bytes
        return pa.PythonFile(_RangeFile(self, path, size_bytes), mode="r")

    def open_unmapped(self, path: str) -> pa.NativeFile:
        return self.open(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Bytes of an object; the range must be inside it."""
        with self._errors(path):
            return obstore.get_range(self._store, path, start=start, length=length).to_bytes()

    def local_path(self, path: str, scratch: Path) -> Path:
        """Return a copy with a unique name in ``scratch``; the caller removes it."""
        checked_path(path)
        target = scratch / f"{uuid.uuid4().hex}-{Path(path).name}"
        try:
            with self._errors(path), disk_full_reported(str(target)), target.open("xb") as file:
                for chunk in obstore.get(self._store, path).stream(_COPY_BYTES):
                    file.write(chunk)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return target

    def head(self, path: str) -> ObjectInfo:
        checked_path(path)
        with self._errors(path):
            return _info(obstore.head(self._store, path))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix:
            checked_path(prefix)
        last, in_order, tries = "", True, _Tries()
        listing = self._listing(prefix, last)
        while True:
            try:
                with self._errors(prefix):
                    chunk = next(listing, None)
            except StoreAway:
                # Stores list in the order of names, as S3 promises. One that does not cannot continue.
                if not in_order or not tries.another():
                    raise
                listing = self._listing(prefix, last)
                continue
            if chunk is None:
                return
            for found in map(_info, chunk):
                in_order = in_order and found.path > last
                last = found.path
                yield found
            tries = _Tries()

    def _listing(self, prefix: str, after: str) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Objects below the prefix whose names are behind ``after``, in chunks."""
        return iter(obstore.list(self._store, prefix or None, offset=after or None, chunk_size=_LIST_CHUNK))

    def delete(self, path: str) -> None:
        checked_path(path)
        with contextlib.suppress(ObjectMissing):
            self._repeated(path, lambda: obstore.delete(self._single_deletes, path))

    def delete_all(self, paths: Sequence[str]) -> None:
        for some in batched(paths, _DELETES_MAX):
            chunk = [checked_path(path) for path in some]
            if self._has_bulk_deletes:
                try:
                    self._repeated(chunk[0], partial(obstore.delete, self._brief, chunk))
                    continue
                except StoreAway as error:
                    if not _is_no_bulk(error):
                        raise
                    self._has_bulk_deletes = False
            for_each(self, lambda store, path: store.delete(path), chunk)

    def _repeated(self, path: str, request: Callable[[], object]) -> None:
        """Make a request that may be made twice, again and again for `_PATIENCE_S`."""
        tries = _Tries()
        while True:
            try:
                with self._errors(path):
                    request()
                return
            except StoreAway as error:
                if _is_no_bulk(error) or not tries.another():
                    raise

    def failures(self) -> StoreFailures | None:
        return self._failures.found()

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Turn the library's errors into this project's."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            self._failures.answered()
            raise ObjectExists(path) from None
        except (BaseError, FileNotFoundError) as error:
            found = self._error(path, error)
            if isinstance(found, ObjectMissing):
                self._failures.answered()
            else:
                self._failures.failed(found.message)
            raise found from None
        self._failures.answered()

    def _error(self, path: str, error: Exception) -> ObjectMissing | ElanusError:
        text = str(error).partition("\n\nDebug source")[0]
        if "NoSuchBucket" in text:
            return StoreRefused(f"the object store has no bucket {self._bucket!r}: make it, or name another")
        if isinstance(error, FileNotFoundError):
            return ObjectMissing(path)
        denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if denied or any(refusal in text for refusal in _REFUSALS):
            return StoreRefused(
                f"the object store refuses the credentials for {path or 'a listing'} in bucket "
                f"{self._bucket!r}: check access key, secret and what they are allowed"
            )
        if "507 Insufficient Storage" in text:
            return DiskFull(f"the object store has no room for {path}")
        return StoreAway(f"the object store does not answer for {path or 'a listing'}: {text}")


def _is_no_bulk(error: StoreAway) -> bool:
    return any(refusal in error.message for refusal in _NO_BULK)


class _Tries:
    """The tries of one request that the library does not repeat, for `_PATIENCE_S` from now."""

    def __init__(self) -> None:
        self._end_s = time.monotonic() + _PATIENCE_S
        self._pause_s = _FIRST_PAUSE_S

    def another(self) -> bool:
        """Pause, and return whether another try is due; return False at once when the time is up."""
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        if time.monotonic() + pause_s > self._end_s:
            return False
        time.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True


class _RangeFile:
    """An object as a file that fetches only what is read. Each read is a request."""

    closed = False

    def __init__(self, store: S3Store, path: str, size_bytes: int) -> None:
        self._store = store
        self._path = path
        self._size_bytes = size_bytes
        self._at = 0

    def read(self, size_bytes: int = -1) -> bytes:
        left = max(0, self._size_bytes - self._at)
        wanted = left if size_bytes < 0 else min(size_bytes, left)
        if wanted == 0:
            return b""
        data = self._store.read_range(self._path, self._at, wanted)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size_bytes}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _info(found: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], found["last_modified"], found["e_tag"] or "")


def _open(
    source: S3Source, patience_s: float | None = None, *, disable_bulk_delete: bool = False
) -> RemoteStore:
    config: dict[str, Any] = dict(_credentials(source.credentials))
    if endpoint := source.endpoint or os.environ.get("AWS_ENDPOINT_URL"):
        config["endpoint"] = endpoint
    if source.region:
        config["region"] = source.region
    return RemoteStore(
        source.bucket,
        prefix=source.prefix or None,
        client_options={
            "allow_http": (endpoint or "").startswith("http://"),
            "timeout": timedelta(seconds=_TIMEOUT_S),
            "connect_timeout": timedelta(seconds=_CONNECT_TIMEOUT_S),
        },
        retry_config={
            "max_retries": _RETRIES_MAX,
            "retry_timeout": timedelta(seconds=_PATIENCE_S if patience_s is None else patience_s),
            "backoff": {
                "init_backoff": timedelta(seconds=_FIRST_PAUSE_S),
                "max_backoff": timedelta(seconds=_LONGEST_PAUSE_S),
            },
        },
        disable_bulk_delete=disable_bulk_delete,
        **config,
    )


def _credentials(named: str) -> Mapping[str, str]:
    """Keys from a shared credentials file. Without them, the library uses the environment and the role."""
    if not named and "AWS_ACCESS_KEY_ID" in os.environ:
        return {}
    usual = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    file = Path(named or usual).expanduser()
    profile = os.environ.get("AWS_PROFILE", "default") if not named else "default"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        found = parser.read(file, encoding="utf-8")
        if not found and not named:
            return {}
        section = parser[profile]
        keys = {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
        }
        token = section.get("aws_session_token")
        return {**keys, "session_token": token} if token else keys
    except (OSError, UnicodeDecodeError, KeyError, configparser.Error):
        # the parser's own messages quote lines of the file
        raise InvalidParameter(
            f"the S3 credentials in {file} cannot be used: it needs a section [{profile}] with "
            "aws_access_key_id and aws_secret_access_key"
        ) from None
