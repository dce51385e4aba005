"""Rules about collections: their segments, what is loaded, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from elanus.server.doctor.finding import Finding, critical, mb, some, warning
from elanus.server.doctor.roles import SETTLED_S
from elanus.server.status import CollectionStatus, Status

SEGMENTS_MANY = 50
ROWS_FEW = 5000
"""Segments of fewer rows on average are small."""
UNFLUSHED_MANY = 32
PIN_S = 24 * 3600.0
OVERDUE_S = 3600.0


def files_unreadable(status: Status) -> Iterator[Finding]:
    """Query nodes cannot read a file of a segment: an index, a manifest, an insert or delta log."""
    for collection in status.collections:
        for reason in collection.unreadable:
            yield critical(
                f"a part of {_name(collection)} cannot be read",
                reason,
                "restore the file from a copy of the object store; it is tried again within ten minutes "
                "(docs/reliability.md)",
            )


def log_unreadable(status: Status) -> Iterator[Finding]:
    """Query nodes cannot read the log of a collection: it is damaged, or it lacks what is still needed."""
    for collection in status.collections:
        for reason in collection.unreadable_logs:
            yield critical(
                f"the log of {_name(collection)} cannot be read, so its reads are refused",
                reason,
                "restore the log from a copy and start the server again, or drop the collection; the other "
                "collections are not affected (docs/reliability.md)",
            )


def load_incomplete(status: Status) -> Iterator[Finding]:
    """A collection is not loaded completely although the server has been up for two minutes."""
    partial = [
        f"{_name(c)} {c.loaded_percent}%"
        for c in status.collections
        if c.loaded_percent is not None and c.loaded_percent < 100
    ]
    if partial and status.uptime_s > SETTLED_S:
        yield warning(
            "collections are not loaded completely",
            some(partial),
            "wait if the figure grows; otherwise look for unreadable files, missing query nodes, and loads "
            "that querynode.memory_mb refuses",
        )


def small_segments(status: Status) -> Iterator[Finding]:
    """A collection has fifty or more flushed segments with few rows each: every search visits all of them."""
    for collection in status.collections:
        flushed = collection.segments.get("Flushed", 0)
        if flushed >= SEGMENTS_MANY and collection.rows < ROWS_FEW * flushed:
            yield warning(
                f"{_name(collection)} is in many small segments",
                f"{flushed} flushed segments, {collection.rows // flushed:,} rows in each on average",
                "call compact() once; flush less often, use fewer partitions or shards, and see that "
                "compaction.enabled is true",
            )


def flushes_behind(status: Status) -> Iterator[Finding]:
    """Many sealed segments wait for their flush: the pipeline is slower than the writes."""
    waiting = {
        _name(c): count
        for c in status.collections
        if (count := c.segments.get("Sealed", 0) + c.segments.get("Flushing", 0))
    }
    if sum(waiting.values()) >= UNFLUSHED_MANY:
        yield warning(
            "flushes lag behind the writes",
            f"{sum(waiting.values())} segments wait: " + some([f"{n} {k}" for n, k in waiting.items()]),
            "see whether flush jobs fail or wait (`elanus jobs`); give Spark more cores, or write less",
        )


def recall_below_target(status: Status) -> Iterator[Finding]:
    """Searches find fewer of the true best rows than querynode.recall_target asks for, as far as samples of
    live searches show."""
    for one in status.recalls:
        if one.cause:
            yield warning(
                f"searches on {one.collection} miss hits: recall {one.recall:.3f}, target {one.target:g}",
                f"field {one.field}, index {one.index}, filters that leave {one.band}: between {one.low:.3f} "
                f"and {one.high:.3f} in {one.samples} samples; {one.cause}",
                "raise the parameter or build a better index (docs/measured-recall.md); or lower "
                "querynode.recall_target",
            )


def garbage_stuck(status: Status) -> Iterator[Finding]:
    """The last round of garbage collection was aborted, or dropped files take more than the free disk."""
    garbage, resources = status.garbage, status.resources
    if garbage.error:
        yield warning(
            "garbage collection does not get through",
            f"last round: {garbage.error}",
            "remove the cause, then run `elanus gc`",
        )
    free_bytes = resources.disk_free_bytes if resources else None
    if free_bytes is not None and garbage.waiting_bytes > max(free_bytes, 1 << 30):
        yield warning(
            "dropped data takes more space than is free",
            f"{mb(garbage.waiting_bytes)} dropped and still there, {mb(free_bytes)} free",
            "`elanus gc --dry-run` shows what keeps it and until when; lower gc.drop_tolerance_s if reads of "
            "the past are not needed",
        )


def files_held(status: Status) -> Iterator[Finding]:
    """A reader has kept its moment for a day, or dropped files for an hour after their time."""
    for one in status.garbage.held:
        if not one.segments and one.held_s >= PIN_S:
            yield warning(
                "the pin of a reader keeps files of the past",
                f"{one.holder} of collection {status.collection_named(one.collection_id)} "
                f"reads it as of {one.held_s / 3600:.0f} h ago",
                "see whether a Spark job or a client still reads it; the pin ends when that releases its "
                "snapshot, or with its lease (`elanus gc --dry-run` shows the end)",
                one.since,
            )
        elif one.segments and one.held_s >= OVERDUE_S and "query node" in one.holder:
            yield warning(
                "files of dropped segments are still in use",
                f"{one.holder} keeps {one.segments} segments of collection "
                f"{status.collection_named(one.collection_id)}, {mb(one.bytes)}, "
                f"{one.held_s / 3600:.1f} h after their time",
                "release the collection and load it again, or restart the query node",
                one.since,
            )


def _name(collection: CollectionStatus) -> str:
    return f"{collection.database}.{collection.name}"


RULES = (
    files_unreadable,
    log_unreadable,
    load_incomplete,
    small_segments,
    flushes_behind,
    garbage_stuck,
    files_held,
    recall_below_target,
)
