"""The explanation of one read, as values and as text.

The values travel between processes and to clients as JSON, under the names that they have here. All times are
milliseconds; processor time is that of the thread that answers, and None where it was not measured: to look
at that clock takes a system call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

SEGMENTS_SHOWN_MAX = 50
"""Segments of one node that an explanation has in full."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    ms: float
    cpu_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A read's work on one segment.

    ``state``: growing or sealed. ``matching``: rows that are visible and that the filter matches, None if
    they were not counted; ``estimated``: how many that were at most, by the estimate of scalar indexes, None
    without one. ``filter``: how the filter was answered. ``pruned_by``: the statistics that show that no row
    matches. ``methods``: how rows were compared, and why so. ``compared``: rows compared, over all queries;
    ``compared_is_estimate``: computed and not counted.
    """

    segment_id: int
    state: str
    rows: int
    matching: int | None = None
    estimated: int | None = None
    filter: str = ""
    pruned_by: str = ""
    methods: tuple[str, ...] = ()
    compared: int = 0
    compared_is_estimate: bool = False
    ms: float = 0.0
    cpu_ms: float | None = None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The part of one query node in a read.

    ``what``: the kind of read. ``version``: that of the collection on the node; ``waited_ms``: until the
    read's timestamp was served. ``left_out``: segments that were not looked at, by reason. ``segments``: the
    first of ``segment_count`` that were; ``pruned``: how many of them had no row that can match.
    """

    node_id: int
    what: str
    version: int
    segment_count: int
    pruned: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    segments: tuple[SegmentPart, ...] = ()
    steps: tuple[Step, ...] = ()
    waited_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """``request``: the RPC. ``facts``: what the read was asked for and as of when, in words. ``ms``: from
    the arrival of the request to its answer, without the network. ``waited_ms``: how much of it was waiting
    for the timestamp."""

    request: str
    facts: Mapping[str, str]
    ms: float
    cpu_ms: float | None
    waited_ms: float
    steps: tuple[Step, ...]
    nodes: tuple[NodeReport, ...]


def text_of(explanation: Explanation) -> str:
    """Return the explanation as lines for people."""
    return "\n".join(_lines(explanation))


def _lines(found: Explanation) -> Iterator[str]:
    waited = f", {_ms(found.waited_ms)} of it waiting for the timestamp" if found.waited_ms else ""
    cpu = "" if found.cpu_ms is None else f", {_ms(found.cpu_ms)} of processor time"
    yield f"{found.request}: {_ms(found.ms)}{cpu}{waited}"
    for name, text in found.facts.items():
        yield f"  {name}: {text}"
    yield from _steps(found.steps, "  ")
    for node in found.nodes:
        yield from _node(node)


def _steps(steps: tuple[Step, ...], indent: str) -> Iterator[str]:
    for step in steps:
        cpu = "" if step.cpu_ms is None else f"  {_ms(step.cpu_ms):>10} cpu"
        yield f"{indent}{_ms(step.ms):>10}{cpu}  {step.name}"


def _node(node: NodeReport) -> Iterator[str]:
    waited = f", waited {_ms(node.waited_ms)} for the timestamp" if node.waited_ms else ""
    yield f"  node {node.node_id}: {node.what}, version {node.version}{waited}"
    yield from _steps(node.steps, "    ")
    pruned = f", {node.pruned} of them pruned" if node.pruned else ""
    yield f"    segments considered: {node.segment_count}{pruned}"
    for reason, count in node.left_out.items():
        yield f"    segments left out: {count}, {reason}"
    for segment in node.segments:
        yield from _segment(segment)
    if node.segment_count > len(node.segments):
        yield f"    {node.segment_count - len(node.segments):,} more segments"


def _segment(part: SegmentPart) -> Iterator[str]:
    yield f"    segment {part.segment_id} ({part.state}, {part.rows:,} rows): {_ms(part.ms)}"
    if part.pruned_by:
        yield f"      pruned: {part.pruned_by}"
        return
    if part.matching is not None:
        share = 100 * part.matching / max(1, part.rows)
        estimated = ""
        if part.estimated is not None:
            estimated = f", estimated: at most {part.estimated:,}"
        yield f"      rows to choose from: {part.matching:,} ({share:.1f} %){estimated}"
    if part.filter:
        yield f"      filter: {part.filter}"
    for method in part.methods:
        yield f"      {method}"
    if part.compared:
        about = "about " if part.compared_is_estimate else ""
        yield f"      rows compared: {about}{part.compared:,}"


def _ms(ms: float) -> str:
    return f"{ms:.2f} ms"
