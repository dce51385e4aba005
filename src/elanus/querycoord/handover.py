"""When the output of a compaction takes its inputs' place: one decision for each version of a replica.

Inputs and output hold the same rows, so they change places in one version. Two things hold the output back,
while its inputs go on serving:

- a node has not read its vchannel up to the output's last row. Rows that it reads later would come up as a
  growing segment, of whose existence the version that names the output could not know;
- the collection has an index, the inputs are served with it, and the output's is not built yet. Searches
  would scan what they searched before.

Where an input is not served any more (a node was lost, or all were restarted), there is nothing to go on
with, and the output is loaded as it is. Growing inputs are lost with the node that leads their vchannel: who
follows that anew begins behind their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elanus.core.ids import NO_SEGMENT, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.rpc.querynode import SegmentServing


@dataclass(frozen=True, slots=True)
class Served:
    """What a replica serves, looked up before its target was.

    ``named``: the sealed segments of the version in force, ``sealed`` those of them that nodes serve.
    ``growing``: growing segments, each with its vchannel. ``ticks``: up to where the node that leads it has
    followed each vchannel; none for a vchannel that nobody follows yet, or whose node serves no version.
    """

    named: Collection[SegmentID]
    sealed: Mapping[SegmentID, SegmentServing]
    growing: Mapping[SegmentID, str]
    ticks: Mapping[str, Timestamp]


@dataclass(frozen=True, slots=True)
class Handover:
    """``held``: outputs that are not to be served yet; ``kept``: sealed segments that go on serving in their
    place, each with its vchannel; ``retired``: growing segments whose rows are in a flushed one (those of a
    dropped partition go with its drop message, no earlier). ``late``:
    of those held, the ones that wait for a node to read on, which nobody announces."""

    held: frozenset[SegmentID]
    kept: Mapping[SegmentID, str]
    retired: Mapping[SegmentID, str]
    late: frozenset[SegmentID]


def decide(
    wanted: Mapping[SegmentID, SegmentManifest],
    served: Served,
    successors: Mapping[SegmentID, SegmentID],
    unbuilt: Collection[SegmentID],
    service_ts: Timestamp,
) -> Handover:
    """``wanted``: the flushed segments. ``successors``: of what is served, what is dropped, each with the
    flushed segment that has its rows (0: none). ``unbuilt``: segments that wait for an index.
    ``service_ts``: up to where the replica answers."""
    outputs = [m for m in wanted.values() if m.parents and m.segment_id not in served.named]
    lost = {successors.get(s) for s in served.named if s not in served.sealed}
    indexed = {successors.get(s) for s, serving in served.sealed.items() if serving.index_ids}
    late = frozenset(m.segment_id for m in outputs if _is_late(m, served, service_ts))
    unindexed = {
        m.segment_id
        for m in outputs
        if m.segment_id in unbuilt and m.segment_id in indexed and _has_inputs(m, served)
    }
    held = (late | unindexed) - lost
    return Handover(
        held,
        {s: serving.vchannel for s, serving in served.sealed.items() if successors.get(s) in held},
        {s: v for s, v in served.growing.items() if successors.get(s, NO_SEGMENT) not in (NO_SEGMENT, *held)},
        late & held,
    )


def _has_inputs(manifest: SegmentManifest, served: Served) -> bool:
    """Whether its inputs are served: all as sealed segments, or some as what they grew from."""
    is_followed = served.ticks.get(manifest.vchannel, NO_TIMESTAMP) > NO_TIMESTAMP
    return is_followed or all(segment_id in served.sealed for segment_id in manifest.parents)


def _is_late(manifest: SegmentManifest, served: Served, service_ts: Timestamp) -> bool:
    tick = served.ticks.get(manifest.vchannel, NO_TIMESTAMP)
    newest = max(file.ts_max for file in manifest.insert_logs)
    is_followed = tick > NO_TIMESTAMP  # a vchannel that is followed anew begins behind all flushed rows
    return is_followed and (tick < newest or service_ts < manifest.deletes_from)
