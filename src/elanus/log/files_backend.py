"""The backend ``file``: the embedded log, in a directory that the URL names.

Its files must be visible to every process that reads it, Spark's workers included; one process writes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from elanus.core.backends import identity_of_place
from elanus.core.errors import InvalidParameter
from elanus.log.port import Log, LogBackend, LogFollower, LogOptions, RangeReader

_FORM = "file:///absolute/directory"


def _directory(url: str) -> Path:
    """Raises `InvalidParameter`."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/"):
        raise InvalidParameter(f"log {url!r}: expected a URL of the form {_FORM}")
    return Path(unquote(parts.path))


async def _open(url: str, options: LogOptions) -> Log:
    from elanus.log.files import FileLog, FileLogOptions
    from elanus.log.reading import read_errors

    directory = _directory(url)
    with read_errors(directory):
        return FileLog(
            directory, FileLogOptions(options.fsync, options.file_bytes_max, options.sync_delay_ms)
        )


async def _follow(url: str, poll_ms: float) -> LogFollower:
    from elanus.log.follower import FileLogFollower

    return FileLogFollower(_directory(url), poll_ms=poll_ms)


def _range_reader(url: str) -> RangeReader:
    from elanus.log.reading import read_range

    return partial(read_range, _directory(url))


BACKEND = LogBackend(
    form=_FORM,
    check=_directory,
    shared=False,
    identity=identity_of_place,
    open=_open,
    follow=_follow,
    range_reader=_range_reader,
)
