"""`elanus snapshot`, `elanus clone` and `elanus undrop`, on a running server."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from elanus.api.connector import ConnectorApi
from elanus.api.snapshots import RestoreJob, SnapshotView
from elanus.cli.columns import Column, show, table
from elanus.cli.server_calls import Server, ask
from elanus.cli.status import size
from elanus.core.errors import ElanusError
from elanus.core.timestamps import Timestamp, physical_ms

T = TypeVar("T")


class SnapshotsFailed(Exception):
    """The server could not be reached, or refused. The text is for the user."""


def said(job: RestoreJob) -> str:
    """Return the line that reports a clone."""
    return f"{job.collection} holds the rows as of {time_of(job.moment)}; load it to read them"


def time_of(moment: Timestamp) -> str:
    when = datetime.datetime.fromtimestamp(physical_ms(moment) / 1000, datetime.UTC)
    return when.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00") + " UTC"


def show_snapshots(found: Sequence[SnapshotView], console: Console | None = None) -> None:
    show(console or Console(), snapshots_table(found))


def snapshots_table(found: Sequence[SnapshotView]) -> Text:
    names = ("snapshot", "collection", "as of", "keeps", "description")
    rows = [(s.name, s.collection, time_of(s.moment), size(s.bytes), s.description) for s in found]
    return table("Snapshots", tuple(map(Column, names)), rows)


def asked(server: Server, call: Callable[[ConnectorApi], Awaitable[T]]) -> T:
    """Call the server. Raises `SnapshotsFailed`."""
    try:
        return ask(server, ConnectorApi, call)
    except ElanusError as error:
        raise SnapshotsFailed(error.message) from None
