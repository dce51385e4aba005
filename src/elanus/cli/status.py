"""`elanus status`: the server's status as tables of plain text.

Normal values are plain; values that need attention are colored: a role that does not serve, a
channel whose ticks have stopped, a pipeline that is down. The columns are always the same, whatever
the server answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console
from rich.text import Text

from elanus.api.pipeline import SparkState
from elanus.cli.columns import Cell, Column, show, table
from elanus.cli.remote import NoAnswer
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    GarbageStatus,
    JobStatus,
    PipelineStatus,
    RecallStatus,
    ResourceGroup,
    RoleStatus,
    ServingStatus,
    Status,
)

LAG_WARNING_MS = 2000
"""Ten times the usual interval between ticks."""

_ROLES = (Column("role"), Column("id", right=True), Column("state"), Column("detail"))
_CHANNELS = (
    Column("pchannel"),
    Column("lag", right=True),
    Column("log", right=True),
    Column("vchannels", right=True),
    Column("data_node", right=True),
    Column("tick", right=True, wide=True),
)
_STATES = ("Growing", "Sealed", "Flushed")
_WIDE_STATES = ("Flushing", "Dropped", "Importing")
_COLLECTIONS = (
    Column("collection"),
    Column("rows", right=True),
    Column("loaded", right=True),
    *(Column(state.lower(), right=True, wide=state in _WIDE_STATES) for state in _STATES + _WIDE_STATES),
)
_GROUPS = (Column("group"), Column("missing", right=True), Column("replicas", right=True), Column("nodes"))
_SERVING = (
    Column("process", right=True),
    Column("pid", right=True),
    Column("collections", right=True),
    Column("reads", right=True),
    Column("passed on", right=True),
    Column("memory", right=True),
    Column("late", right=True),
    Column("restarts", right=True),
)
_RECALLS = (
    Column("field"),
    Column("index"),
    Column("rows after filter"),
    Column("recall", right=True),
    Column("interval", wide=True),
    Column("samples", right=True),
    Column("cause", wide=True),
)
_JOBS = (
    Column("job"),
    Column("state"),
    Column("started"),
    Column("took", right=True),
    Column("done", right=True),
    Column("kind", wide=True),
    Column("rows", right=True, wide=True),
    Column("size", right=True, wide=True),
    Column("cause", wide=True),
)
_LATE_MS = 100
"""Shorter delays of the event loop are usual."""
_TO_THE_MINUTE = len("2026-01-01T00:00")
_JOB_STYLES = {"running": "cyan", "finished": "green", "failed": "red", "lost": "red", "cancelled": "yellow"}
_ROLE_STYLES = {"Healthy": "green", "Standby": "green", "Initializing": "yellow"}


def show_status(answer: bytes, console: Console | None = None, *, wide: bool = False) -> None:
    """Print a ``/status`` answer. Raises `NoAnswer` if it has another form."""
    try:
        status = msgspec.json.decode(answer, type=Status)
    except msgspec.DecodeError as error:
        raise NoAnswer(f"the answer is not a status of this release: {error}") from None
    console = console or Console()
    for part in _render(status, wide):
        show(console, part)


def _render(status: Status, wide: bool) -> Iterator[Text | str]:
    lag = f", event loop up to {duration(status.loop_lag_ms)} late" if status.loop_lag_ms >= _LATE_MS else ""
    yield f"elanus {status.version}, up {duration(status.uptime_s * 1000)}{lag}"
    yield _pipeline(status.pipeline)
    yield _garbage(status.garbage)
    if quarantined := sum(channel.quarantined for channel in status.channels):
        yield Text(f"{quarantined} log entries in quarantine: they do not fit their collection", "red")
    if status.slow_requests:
        yield f"{status.slow_requests} slow requests; the last: elanus slow"
    for refusal in filter(None, (channel.refusal for channel in status.channels)):
        yield Text(refusal, "red")
    for collection in status.collections:
        for reason in (*collection.unreadable_logs, *collection.unreadable):
            yield Text(f"{collection.database}.{collection.name}: {reason}", "red")
    for part in (
        _roles(status.roles, wide),
        _channels(status.channels, wide),
        _collections(status.collections, wide),
        _groups(status.resource_groups, wide),
        *((_serving(status.serving, wide),) if status.serving else ()),
        *((_recalls(status.recalls, wide),) if status.recalls else ()),
        jobs_table(status.jobs, wide=wide),
    ):
        yield ""
        yield part


def _roles(roles: Sequence[RoleStatus], wide: bool) -> Text:
    """A role of another process is called ``ROLE ID``."""
    rows = []
    for role in roles:
        name, _, node_id = role.role.partition(" ")
        rows.append((name, node_id, Cell(role.state, _ROLE_STYLES.get(role.state, "red")), role.detail))
    return table("Roles", _ROLES, rows, wide=wide)


def _serving(processes: Sequence[ServingStatus], wide: bool) -> Text:
    rows = [
        (
            str(one.number),
            str(one.pid) if one.pid else Cell("down", "red"),
            str(one.collections),
            str(one.reads),
            str(one.passed_on),
            _cell_size(one.memory_bytes),
            duration(one.loop_lag_ms),
            str(one.restarts),
        )
        for one in processes
    ]
    return table("Serving processes", _SERVING, rows, wide=wide)


def _pipeline(pipeline: PipelineStatus) -> Text:
    rests = pipeline.spark == SparkState.ASLEEP
    where = f"pid {pipeline.pid}" if pipeline.pid else "no process" if rests else "not running"
    style = "" if pipeline.pid or rests else "red"
    spark = f", Spark {pipeline.spark}" if pipeline.spark else ""
    ended = pipeline.cause if pipeline.state != "Healthy" else ""
    cause = f"; ended the last time: {ended}" if ended else ""
    return Text(f"pipeline: {pipeline.state}, {where}, {pipeline.restarts} restarts{spark}{cause}", style)


def _garbage(garbage: GarbageStatus) -> Text:
    waiting, reclaimed = size(garbage.waiting_bytes), size(garbage.reclaimed_bytes)
    text = f"garbage collection: {garbage.state}, {reclaimed} reclaimed, {waiting} dropped and still there"
    return Text(f"{text}; last round: {garbage.error}" if garbage.error else text)


def _channels(channels: Sequence[ChannelStatus], wide: bool) -> Text:
    rows = []
    for channel in channels:
        lag = Cell(f"{channel.lag_ms:.0f}ms", "red" if channel.lag_ms > LAG_WARNING_MS else "")
        owner = str(channel.data_node) if channel.data_node else "none"
        facts = (_cell_size(channel.log_bytes), str(channel.vchannels), owner if channel.vchannels else "")
        rows.append((channel.pchannel, lag, *facts, str(channel.tick)))
    return table("Channels", _CHANNELS, rows, wide=wide)


def _collections(collections: Sequence[CollectionStatus], wide: bool) -> Text:
    rows = []
    for collection in collections:
        loaded = "no" if collection.loaded_percent is None else f"{collection.loaded_percent}%"
        counts = [str(collection.segments.get(state, 0)) for state in _STATES + _WIDE_STATES]
        rows.append((f"{collection.database}.{collection.name}", str(collection.rows), loaded, *counts))
    return table("Collections", _COLLECTIONS, rows, wide=wide)


def _groups(groups: Sequence[ResourceGroup], wide: bool) -> Text:
    rows = []
    for group in groups:
        missing = Cell(str(group.missing_nodes), "red" if group.missing_nodes else "")
        rows.append((group.name, missing, str(group.replicas), ",".join(map(str, group.nodes))))
    return table("Resource groups", _GROUPS, rows, wide=wide)


def _recalls(recalls: Sequence[RecallStatus], wide: bool) -> Text:
    """Return the measured recall of the searches that the process answered."""
    rows = []
    for one in recalls:
        recall = Cell(f"{one.recall:.3f}", "red" if one.cause else "")
        between = f"{one.low:.3f} to {one.high:.3f}"
        facts = (one.index, one.band, recall, between, str(one.samples))
        rows.append((f"{one.collection}.{one.field}", *facts, one.cause))
    return table("Measured recall", _RECALLS, rows, wide=wide)


def jobs_table(jobs: Sequence[JobStatus], *, wide: bool = False) -> Text:
    """Return the jobs of a ledger as a table; those that ended badly are colored.

    The wide form also has the causes, and the errors of failed jobs.
    """
    rows = []
    for job in jobs:
        done = f"{job.percent:.0f}%" if job.state == "running" else ""
        facts = (job.started[:_TO_THE_MINUTE], duration(job.duration_ms, ""), done, job.kind, str(job.rows))
        state = Cell(job.state, _JOB_STYLES.get(job.state, ""))
        error = job.error.partition("\n")[0]
        cause = f"{job.cause}; {error}" if error else job.cause
        rows.append((job.job_id, state, *facts, _cell_size(job.bytes), cause))
    return table("Jobs", _JOBS, rows, wide=wide)


def _cell_size(count: int) -> str:
    return size(count, "")


def duration(ms: float, gap: str = " ") -> str:
    """Format a duration in the largest unit in which it is at least 1; ``gap`` precedes the unit."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f}{gap}{unit}"
    return f"{ms:.0f}{gap}ms"


def size(count: int, gap: str = " ") -> str:
    """Format a number of bytes in the largest unit in which it is at least 1; ``gap`` precedes the unit."""
    for unit, unit_bytes in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:.1f}{gap}{unit}"
    return f"{count}{gap}B"
