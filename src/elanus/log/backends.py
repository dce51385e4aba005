"""The backends of the log, by the scheme of `log.url`."""

from __future__ import annotations

from elanus.core.backends import Backends
from elanus.log import files_backend
from elanus.log.jetstream import backend as jetstream_backend
from elanus.log.port import LogBackend, RangeReader

BACKENDS: Backends[LogBackend] = Backends(
    "log",
    "log.url",
    {"file": files_backend.BACKEND, "nats": jetstream_backend.BACKEND, "tls": jetstream_backend.BACKEND},
)


def range_reader(url: str) -> RangeReader:
    """Return a reader of finished ranges of the log at the URL, for a Spark task, which is sent the URL.

    Opens nothing yet. Raises `elanus.core.errors.InvalidParameter`.
    """
    return BACKENDS.of(url).range_reader(url)
