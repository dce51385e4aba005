"""The backend ``file``: objects in a directory that all processes see under the path in the URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from elanus.core.backends import identity_of_place
from elanus.core.errors import InvalidParameter
from elanus.storage.port import ObjectStore, StorageBackend

_FORM = "file:///absolute/directory"


def _directory(url: str) -> Path:
    """Raises `InvalidParameter`."""
    parts = urlsplit(url)
    root = Path(unquote(parts.path))
    if parts.netloc not in ("", "localhost") or not root.is_absolute():
        raise InvalidParameter(
            f"object store {url!r}: expected a URL of the form {_FORM}, with three slashes"
        )
    return root


def _open(url: str) -> ObjectStore:
    from elanus.storage.local import LocalStore

    return LocalStore(_directory(url))


def _clean(url: str, unused_for_s: float) -> None:
    from elanus.storage.local import LocalStore

    LocalStore(_directory(url)).discard_staged(unused_for_s)


BACKEND = StorageBackend(form=_FORM, check=_directory, identity=identity_of_place, open=_open, clean=_clean)
