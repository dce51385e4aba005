"""The deletes of writes, from their commit until every query node that serves the collection has them.

A write's delta logs enter their vchannels' lists in the transaction that shows its rows. A reader of the
collection's files finds both or neither. A query node has loaded the collection before: it gets the
deletes with the version that brings the rows online, and reads see both from one moment on
(`elanus.querycoord.visible_from`). Until the write's task is *Completed* its deletes are *unserved*: a node
must not find them in what it loads, where they would take effect before the rows do. So they are kept apart
in what nodes load, are not merged with other deletes, and are not folded into segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from elanus.api.imports import ImportOutcome
from elanus.core.errors import CollectionNotFound
from elanus.core.ids import CollectionID
from elanus.core.imports import ImportState, ImportTask
from elanus.core.segments import DeltaLog
from elanus.core.timestamps import MAX_TIMESTAMP, Timestamp
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.state import DataState
from elanus.datacoord.vchannel_table import Vchannel

Change = tuple[Vchannel, Vchannel]
"""A vchannel as it was, and with a further delta log."""


def at_commit(deltas: Iterable[DeltaLog], commit_ts: Timestamp) -> list[DeltaLog]:
    """Return delta logs whose deletes have the timestamp of the commit (`read_delta_log`)."""
    return [replace(log, file=replace(log.file, ts_min=commit_ts, ts_max=commit_ts)) for log in deltas]


async def with_deletes(
    state: DataState, manifests: Manifests, outcome: ImportOutcome, commit_ts: Timestamp, name: str
) -> list[Change]:
    """Write the lists of delta logs with those of a write added, under a new name.

    Not to be called under the lock: compare with `are_current` under it. Raises `CollectionNotFound`.
    """
    changes = []
    for log in at_commit(outcome.deltas, commit_ts):
        before = state.vchannel(log.vchannel)
        if before is None or before.dropping:
            raise CollectionNotFound(f"vchannel {log.vchannel} is dropped")
        logs = await manifests.of_vchannel(before)
        changes.append((before, await manifests.with_deltas(before, (*logs, log), name)))
    return changes


def are_current(state: DataState, changes: Iterable[Change]) -> bool:
    """Whether the lists that were extended are still in force."""
    found = ((state.vchannel(before.vchannel), before) for before, _ in changes)
    return all(known is not None and known.deltas == before.deltas for known, before in found)


def changed(vchannels: Sequence[Vchannel], changes: Iterable[Change]) -> list[Vchannel]:
    """Return the vchannels as they are now, with the extended lists."""
    lists = {after.vchannel: after.deltas for _, after in changes}
    return [replace(v, deltas=lists.get(v.vchannel, v.deltas)) for v in vchannels]


def unserved(tasks: Iterable[ImportTask], collection_id: CollectionID) -> frozenset[str]:
    """Return the paths of the unserved delta logs of a collection."""
    return frozenset(path for task in _unserved(tasks, collection_id) for path in task.deltas)


def served_until(tasks: Iterable[ImportTask], collection_id: CollectionID) -> Timestamp:
    """Return the timestamp up to which no delete of a collection is unserved."""
    first = min((task.commit_ts for task in _unserved(tasks, collection_id)), default=MAX_TIMESTAMP)
    return Timestamp(first - 1) if first != MAX_TIMESTAMP else MAX_TIMESTAMP


def _unserved(tasks: Iterable[ImportTask], collection_id: CollectionID) -> Iterable[ImportTask]:
    return (
        task
        for task in tasks
        if task.state is ImportState.PERSISTED and task.deltas and task.collection_id == collection_id
    )
