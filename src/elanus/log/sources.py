"""A log named by a URL: what travels to a Spark task, which opens the right reader of it.

``file:///absolute/directory`` is the embedded log; its files must be visible where the task runs.
``nats://host:port/prefix`` is one on NATS JetStream (`elanus.log.jetstream.source`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from elanus.core.errors import InvalidParameter
from elanus.log.jetstream.source import SCHEMES, NatsSource
from elanus.log.port import RangeReader
from elanus.log.reading import read_range


def range_reader(url: str) -> RangeReader:
    """Reads finished stretches of the log behind the URL. Opens nothing yet. Raises `InvalidParameter`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/"):
        return partial(read_range, Path(unquote(parts.path)))
    if parts.scheme in SCHEMES:
        from elanus.log.jetstream import log  # a task on files needs no NATS client

        return partial(log.read_range, NatsSource.parse(url))
    raise InvalidParameter(
        f"log {url!r}: expected a URL of the form file:///absolute/directory or nats://host:port/prefix"
    )
