"""When the outputs of a compaction replace its inputs: one decision for each version of a replica.

Inputs and outputs hold the same rows, so they are swapped in one version. A compaction by a clustering key
makes several segments from its inputs, and each of them may have been compacted with others since: all that
have rows of one served segment are swapped together (`_together`). Two conditions hold an output back while
its inputs continue to serve:

- A node has not read its vchannel up to the output's last row. Rows that it reads later would appear in a
  growing segment that is unknown when the version naming the output is made.
- The collection has an index, the inputs are served with it, and the output's index is not built yet.
  Searches would have to scan rows that they found through the index before.

If an input is no longer served (a node was lost, or all were restarted), there is nothing to continue with,
and the output is loaded as it is. Growing inputs are lost with the node that leads their vchannel: the node
that takes over the vchannel starts after their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from elanus.core.heirs import Heirs
from elanus.core.ids import NO_SEGMENT, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.querycoord.served import Served


@dataclass(frozen=True, slots=True)
class Handoff:
    """The decision on the handoff for one version.

    ``held``: outputs that are not to be served yet. ``kept``: sealed segments that continue to serve in their
    place, each with its vchannel. ``retired``: growing segments whose rows are in a flushed segment (those of
    a dropped partition are removed by its drop message, no earlier). ``late``: the held outputs that wait for
    a node to read further; nothing announces when it has, so it must be polled.
    """

    held: frozenset[SegmentID]
    kept: Mapping[SegmentID, str]
    retired: Mapping[SegmentID, str]
    late: frozenset[SegmentID]


def decide(
    wanted: Mapping[SegmentID, SegmentManifest],
    served: Served,
    heirs: Heirs,
    unbuilt: Collection[SegmentID],
    service_ts: Timestamp,
) -> Handoff:
    """Decide which outputs replace their inputs now.

    ``wanted``: the flushed segments. ``heirs``: those of the served segments that have been dropped.
    ``unbuilt``: segments that wait for an index. ``service_ts``: the timestamp up to which the replica
    answers.
    """
    outputs = [m for m in wanted.values() if m.parents and m.segment_id not in served.named]
    groups = _together(heirs.split, served.named)
    lost = {heir for s in served.named if s not in served.sealed for heir in heirs.of(s)}
    with_index = (s for s, serving in served.sealed.items() if serving.index_ids)
    indexed = {heir for s in with_index for heir in heirs.of(s)}
    late = frozenset(m.segment_id for m in outputs if _is_late(m, served, service_ts))
    unindexed = {
        m.segment_id
        for m in outputs
        if m.segment_id in unbuilt and m.segment_id in indexed and _has_inputs(m, served)
    }
    held = _whole(late | unindexed, groups) - _whole(lost, groups)
    passing_on = {s: heir for s in served.growing if (heir := heirs.one_of(s)) != NO_SEGMENT}
    return Handoff(
        held,
        {s: serving.vchannel for s, serving in served.sealed.items() if heirs.one_of(s) in held},
        {s: served.growing[s] for s, heir in passing_on.items() if heir not in held},
        late & held,
    )


def hold_back(
    handoff: Handoff,
    unreadable: Collection[SegmentID],
    served: Served,
    heirs: Heirs,
) -> Handoff:
    """Return the decision when some of the wanted segments cannot be read.

    Everything that has their rows continues to serve: an older copy, the growing rows, or the inputs of a
    compaction.
    """
    if not unreadable:
        return handoff
    serving = {s: all_of for s, all_of in heirs.split.items() if s in served.sealed or s in served.growing}
    unserved = _whole(unreadable, _together(serving, served.named))
    stay = {s for s in served.sealed if s in unserved or heirs.one_of(s) in unserved}
    return Handoff(
        handoff.held | unserved,
        {**handoff.kept, **{s: served.sealed[s].vchannel for s in stay}},
        {s: v for s, v in handoff.retired.items() if heirs.one_of(s) not in unserved},
        handoff.late,
    )


def has_rows(manifest: SegmentManifest, handoff: Handoff, growing: Collection[SegmentID]) -> bool:
    """Whether a segment that is held back is served by others. ``growing``: those that stay in service."""
    stay = (manifest.segment_id,), manifest.parents
    return any(ids and all(s in handoff.kept or s in growing for s in ids) for ids in stay)


def _together(
    split: Mapping[SegmentID, tuple[SegmentID, ...]], named: Collection[SegmentID]
) -> list[frozenset[SegmentID]]:
    """Return the sets of segments that a version brings all or none of. ``split``: as in `Heirs`.

    A segment that serves, or may still be read from the log, connects all segments that have its rows: it
    makes way for all of them at once. It has done so if one of them is ``named``.
    """
    groups: list[frozenset[SegmentID]] = []
    for heirs in map(frozenset, dict.fromkeys(split.values())):  # few differ: inputs have theirs in common
        if heirs.isdisjoint(named):
            connected = [group for group in groups if group & heirs]
            groups = [group for group in groups if not group & heirs]
            groups.append(heirs.union(*connected))
    return groups


def _whole(segments: Collection[SegmentID], groups: Iterable[frozenset[SegmentID]]) -> frozenset[SegmentID]:
    """Return the segments with all that are to be brought together with one of them."""
    chosen = frozenset(segments)
    return chosen.union(*(group for group in groups if group & chosen))


def _has_inputs(manifest: SegmentManifest, served: Served) -> bool:
    """Whether its inputs are served: all as sealed segments, or some still as growing segments."""
    is_followed = served.ticks.get(manifest.vchannel, NO_TIMESTAMP) > NO_TIMESTAMP
    return is_followed or all(segment_id in served.sealed for segment_id in manifest.parents)


def _is_late(manifest: SegmentManifest, served: Served, service_ts: Timestamp) -> bool:
    tick = served.ticks.get(manifest.vchannel, NO_TIMESTAMP)
    newest = max(file.ts_max for file in manifest.insert_logs)
    is_followed = tick > NO_TIMESTAMP  # a newly followed vchannel starts after all flushed rows
    return is_followed and (tick < newest or service_ts < manifest.deletes_from)
