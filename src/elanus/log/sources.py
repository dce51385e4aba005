"""A log named by a URL: what travels to a Spark task, which opens the right reader of it.

``file:///absolute/directory`` is the embedded log; its files must be visible where the task runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from elanus.core.errors import InvalidParameter
from elanus.log.port import RangeReader
from elanus.log.reading import read_range


def range_reader(url: str) -> RangeReader:
    """Reads finished stretches of the log behind the URL. Opens nothing yet. Raises `InvalidParameter`."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/"):
        return partial(read_range, Path(unquote(parts.path)))
    raise InvalidParameter(f"log {url!r}: expected a URL of the form file:///absolute/directory")
