"""A query node's part in the explanation of a read: from its trail and its snapshot to a report.

A report is made after the read, and only if somebody wants it: the snapshot is immutable, so which segments
were left out and why, and how a filter is answered, can still be found out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from elanus.api.querynode import NodeQuery, NodeSearch
from elanus.core.explanation import SEGMENTS_SHOWN_MAX, NodeReport, SegmentPart
from elanus.core.ids import NodeID
from elanus.core.target_recall import TARGET_RECALL
from elanus.core.trail import Method, Trail, Visit, current, end_following, follow, following
from elanus.expr import BoundFilter
from elanus.querynode.block import Block
from elanus.querynode.snapshot import Snapshot, SnapshotSegment

FollowedRead = NodeSearch | NodeQuery
R = TypeVar("R", bound=FollowedRead)
T = TypeVar("T")
P = ParamSpec("P")
_KNOWN = "rows known from an earlier read"


def new_trail() -> Trail:
    """Return a trail with the clocks of this process."""
    return Trail(time.perf_counter, time.thread_time)


def reported(
    node_id: NodeID,
    answer: Callable[Concatenate[Snapshot, R, P], T],
    snapshot: Snapshot,
    read: R,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Return the node's answer to a read. If the read is followed, its trail gets the node's report."""
    trail = current()
    if trail is None:
        return answer(snapshot, read, *args, **kwargs)
    part = trail.child()
    token = follow(part)
    try:
        found = answer(snapshot, read, *args, **kwargs)
    finally:
        end_following(token)
    part.step("")
    trail.reports.append(partial(report, node_id, answer.__name__, snapshot, read, part))
    return found


def followed_part(
    node_id: NodeID, snapshot: Snapshot, read: FollowedRead, waited_s: float, work: Callable[[], bytes]
) -> tuple[bytes, NodeReport]:
    """Do the work of a read that another process follows; return what it returns, and the node's report."""
    part = new_trail()
    with following(part):
        answer = work()
    part.step("")
    what = "search" if isinstance(read, NodeSearch) else "query"
    return answer, replace(report(node_id, what, snapshot, read, part), waited_ms=waited_s * 1000)


def report(node_id: NodeID, what: str, snapshot: Snapshot, read: FollowedRead, trail: Trail) -> NodeReport:
    """Return what the node did. ``trail``: that of its part alone, ended by a step without a name."""
    visits: dict[int, list[Visit]] = {}
    for visit in trail.visits:
        visits.setdefault(id(visit.block), []).append(visit)
    left_out: Counter[str] = Counter()
    parts = []
    for segment in snapshot.segments:
        reason = _left_out(segment, read)
        if reason:
            left_out[reason] += 1
        elif segment.blocks:
            parts.append(_part(segment, snapshot, read, trail, visits))
    if isinstance(read, NodeQuery) and read.primary_keys is not None:
        what += " by primary key"  # such as the second one of an ordered query, which looks for newer rows
    shown = parts
    if len(parts) > SEGMENTS_SHOWN_MAX:
        slowest = sorted(parts, key=lambda part: -part.ms)[:SEGMENTS_SHOWN_MAX]
        slow_ids = {part.segment_id for part in slowest}
        shown = [part for part in parts if part.segment_id in slow_ids]
    return NodeReport(
        node_id=node_id,
        what=what,
        version=snapshot.version,
        segment_count=len(parts),
        pruned=sum([bool(part.pruned_by) for part in parts]),
        left_out=dict(left_out),
        segments=tuple(shown),
        steps=trail.steps(),
    )


def _left_out(segment: SnapshotSegment, read: FollowedRead) -> str:
    """Return why the read does not look at a segment; "" if it does."""
    if read.partition_ids and segment.partition_id not in read.partition_ids:
        return "in other partitions"
    if read.ignore_growing and not segment.sealed:
        return "growing, and growing segments are ignored"
    if segment.visible_from > read.read_ts:
        return "made visible after the read's timestamp"
    if segment.blocks and all(block.has_expired(read.expired_until) for block in segment.blocks):
        return "all rows have expired"
    return ""


def _part(
    segment: SnapshotSegment,
    snapshot: Snapshot,
    read: FollowedRead,
    trail: Trail,
    visits: Mapping[int, list[Visit]],
) -> SegmentPart:
    """Return what was done with a segment, over all of its blocks and all visits of them."""
    rows = matching = compared = 0
    seconds = cpu_s = 0.0
    is_counted = is_estimate = False
    descriptions: dict[str, None] = {}
    last: list[Visit] = []
    for block in segment.blocks:
        rows += block.rows
        made = visits.get(id(block))
        if made is None:
            continue
        last.append(made[-1])
        if made[-1].matching is not None:
            is_counted = True
            matching += made[-1].matching
        for visit in made:
            seconds += visit.seconds
            cpu_s += visit.cpu_s
            for method in visit.methods:
                compared += method.compared
                is_estimate = is_estimate or method.is_estimate
                descriptions[_described(method, block, snapshot, read)] = None
    answered, estimated, pruned_by = _filtering(segment, read.filter, last)
    return SegmentPart(
        segment.segment_id,
        "sealed" if segment.sealed else "growing",
        rows,
        matching if is_counted else None,
        estimated,
        answered,
        pruned_by,
        tuple(descriptions),
        compared,
        is_estimate,
        1000 * seconds,
        trail.cpu_ms(cpu_s),
    )


def _filtering(
    segment: SnapshotSegment, row_filter: BoundFilter, last: list[Visit]
) -> tuple[str, int | None, str]:
    """Return how a segment's filter was answered, how many rows it was expected to match at most, and why
    none matches. ``last``: the last visit of each block."""
    left_out = [visit.pruned_by for visit in last]
    by_visits = left_out[0] if left_out and all(left_out) else ""
    if row_filter.matches_all:
        return "", None, by_visits
    blocks = segment.blocks
    reasons = [block.pruned_by(row_filter) for block in blocks]
    estimates = [block.indexed_rows_max(row_filter) for block in blocks]
    known = [number for number in estimates if number is not None]
    return (
        _filter(segment, row_filter, last),
        sum(known) if known and len(known) == len(blocks) else None,
        reasons[0] if reasons and all(reasons) else by_visits,
    )


def _filter(segment: SnapshotSegment, row_filter: BoundFilter, visits: list[Visit]) -> str:
    ways = dict.fromkeys(block.explain_filter(row_filter) for block in segment.blocks)
    if visits and all(visit.was_known for visit in visits):
        return _KNOWN
    return "; ".join(ways)


def _described(method: Method, block: Block, snapshot: Snapshot, read: FollowedRead) -> str:
    why = method.why or _unbuilt(method, block, snapshot, read)
    return _WORDS[method.name](method.params, read) + (f" ({why})" if why else "")


def _unbuilt(method: Method, block: Block, snapshot: Snapshot, read: FollowedRead) -> str:
    """Say if rows are compared because the block has no index of the declared kind."""
    if method.name != "exact" or not isinstance(read, NodeSearch):
        return ""
    index, declared = block.vectors[read.field_id].index, snapshot.specs[read.field_id]
    is_built = index is None or index.spec.kind is declared.kind
    return "" if is_built else f"no {declared.index_type} index over these rows yet"


def _asked(name: str, value: float, params: Mapping[str, float], read: FollowedRead) -> str:
    """Return the effort of a search, and who chose it."""
    if "aimed" not in params:
        return f"{name} {value:.0f} {_chosen_by(name, read)}"
    target = f"target_recall {float(read.params[TARGET_RECALL]):g}" if isinstance(read, NodeSearch) else ""
    if "best" not in params:
        return f"{name} {value:.0f} for {target}, by the recall measured when the index was built"
    best = params["best"]
    if name == "nprobe" and best >= 0:
        measured = f"the build measured {best:.3f} at most, and more lists find no more"
        return f"nprobe {value:.0f} for {target}: {measured}"
    why = "this index has no recall curve" if best < 0 else f"the build measured {best:.3f} at most"
    return f"the largest {name} for {target}: {why}"


def _chosen_by(name: str, read: FollowedRead) -> str:
    """Return who chose a search parameter."""
    sent = read.params if isinstance(read, NodeSearch) else {}
    if name in sent:
        return "of the request"
    return f"of level {sent['level']}" if "level" in sent else "by default"


def _exact(params: Mapping[str, float], read: FollowedRead) -> str:
    asked = f" with {_asked('effort', 0, params, read)}" if "best" in params else ""
    return f"exact: every row compared{asked}"


def _graph(params: Mapping[str, float], read: FollowedRead) -> str:
    codes = " over codes" if "codes" in params else ""
    name = "search_list" if isinstance(read, NodeSearch) and "search_list" in read.params else "ef"
    asked = _asked(name, params["asked_ef"], params, read)
    walked = f"graph{codes}, walked with ef {params['ef']:.0f}: "
    if "expected_share" not in params:
        return walked + asked
    share = 100 * params["expected_share"]
    return f"{walked}{asked}, widened as {share:.1f} % of the rows near the query were expected to match"


def _lists(params: Mapping[str, float], read: FollowedRead) -> str:
    codes = " of codes" if "codes" in params else ""
    asked, probed = params["asked_nprobe"], params["nprobe"]
    why = _asked("nprobe", asked, params, read)
    widened = ", widened for the filter" if probed > asked else ""
    return f"lists{codes}, {probed:.0f} of {params['lists']:.0f} scanned: {why}{widened}"


_WORDS: Mapping[str, Callable[[Mapping[str, float], FollowedRead], str]] = {
    "exact": _exact,
    "graph": _graph,
    "lists": _lists,
    "codes": lambda params, read: (
        f"codes of all rows compared, and the rows of the best {params['candidates']:.0f}"
    ),
    "terms": lambda params, read: (
        "terms: postings of the query's terms read"
        + (f", drop_ratio_search {params['drop_ratio']:g}" if params["drop_ratio"] else "")
    ),
    "bands": lambda params, read: f"rows that share one of {params['bands']:.0f} bands with the query",
    "keys": lambda params, read: "rows looked up by primary key",
    "first keys": lambda params, read: "rows read in the order of primary keys, until there are enough",
}
