"""`elanus status`: the server's own account of itself, as tables.

What is normal is plain, what needs somebody's attention is coloured: a role that does not serve, a
channel whose ticks have stopped, a pipeline that is down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from elanus.cli.remote import NoAnswer
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    GarbageStatus,
    JobStatus,
    PipelineStatus,
    ResourceGroup,
    RoleStatus,
    Status,
)

LAG_WARNING_MS = 2000
"""Ten of the usual intervals between ticks."""

_SEGMENT_ORDER = ("Growing", "Sealed", "Flushing", "Flushed", "Dropped")


def show(answer: bytes, console: Console | None = None) -> None:
    """Print a ``/status`` answer. Raises `NoAnswer` for one in another form."""
    try:
        status = msgspec.json.decode(answer, type=Status)
    except msgspec.DecodeError as error:
        raise NoAnswer(f"the answer is not a status of this release: {error}") from None
    console = console or Console()
    for part in _render(status):
        console.print(part)


def _render(status: Status) -> Iterator[RenderableType]:
    yield f"elanus {status.version}, up {duration(status.uptime_s * 1000)}"
    yield _roles(status.roles)
    yield _pipeline(status.pipeline)
    yield _garbage(status.garbage)
    yield _channels(status.channels)
    yield _collections(status.collections) if status.collections else "no collections"
    if len(status.resource_groups) > 1:  # the default one alone says nothing
        yield _groups(status.resource_groups)
    yield _jobs(status.jobs) if status.jobs else "no pipeline jobs"


def _roles(roles: Sequence[RoleStatus]) -> Table:
    table = Table("role", "state", "detail", title="Roles", title_justify="left")
    for role in roles:
        style = "green" if role.state == "Healthy" else "yellow" if role.state == "Initializing" else "red"
        table.add_row(role.role, Text(role.state, style), role.detail)
    return table


def _pipeline(pipeline: PipelineStatus) -> Text:
    where = f"pid {pipeline.pid}" if pipeline.pid else "not running"
    style = "" if pipeline.pid else "red"
    return Text(f"pipeline: {pipeline.state}, {where}, {pipeline.restarts} restarts", style)


def _garbage(garbage: GarbageStatus) -> Text:
    waiting, reclaimed = size(garbage.waiting_bytes), size(garbage.reclaimed_bytes)
    text = f"garbage collection: {garbage.state}, {reclaimed} reclaimed, {waiting} dropped and still there"
    return Text(f"{text}; last round: {garbage.error}" if garbage.error else text)


def _channels(channels: Sequence[ChannelStatus]) -> Table:
    table = _table("Channels", "pchannel", right=("tick", "lag", "log", "vchannels", "data node"))
    for channel in channels:
        style = "red" if channel.lag_ms > LAG_WARNING_MS else ""
        lag = Text(f"{channel.lag_ms:.0f} ms", style)
        owner = str(channel.data_node) if channel.data_node else "none"
        facts = (size(channel.log_bytes), str(channel.vchannels), owner if channel.vchannels else "")
        table.add_row(channel.pchannel, str(channel.tick), lag, *facts)
    return table


def _collections(collections: Sequence[CollectionStatus]) -> Table:
    states = _states(collections)
    table = _table("Collections", "collection", right=("rows", "loaded", *(s.lower() for s in states)))
    for collection in collections:
        loaded = "no" if collection.loaded_percent is None else f"{collection.loaded_percent} %"
        counts = [str(collection.segments.get(state, 0)) for state in states]
        table.add_row(f"{collection.database}.{collection.name}", f"{collection.rows:,}", loaded, *counts)
    return table


def _groups(groups: Sequence[ResourceGroup]) -> Table:
    table = _table("Resource groups", "group", "query nodes", right=("missing", "replicas"))
    for group in groups:
        missing = Text(str(group.missing_nodes), "red" if group.missing_nodes else "")
        table.add_row(group.name, ", ".join(map(str, group.nodes)), missing, str(group.replicas))
    return table


def _states(collections: Sequence[CollectionStatus]) -> list[str]:
    """The usual states of segments, and whatever else occurs."""
    seen = dict.fromkeys(s for collection in collections for s in collection.segments)
    return [*_SEGMENT_ORDER, *(state for state in seen if state not in _SEGMENT_ORDER)]


def _jobs(jobs: Sequence[JobStatus]) -> Table:
    table = _table(
        "Pipeline jobs", "job", "kind", "state", "cause", "started", right=("took", "rows", "size")
    )
    for job in jobs:
        facts = (job.job_id, job.kind, job.state, job.cause, job.started)
        table.add_row(*facts, duration(job.duration_ms), f"{job.rows:,}", size(job.bytes))
    return table


def _table(title: str, *left: str, right: tuple[str, ...]) -> Table:
    table = Table(*left, title=title, title_justify="left")
    for name in right:
        table.add_column(name, justify="right")
    return table


def duration(ms: float) -> str:
    """A duration in the largest unit that leaves something before the point."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f} {unit}"
    return f"{ms:.0f} ms"


def size(count: int) -> str:
    """A number of bytes in the largest unit that leaves something before the point."""
    for unit, unit_bytes in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:.1f} {unit}"
    return f"{count} B"
