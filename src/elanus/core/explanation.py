"""The explanation of one read, as values and as text.

The values travel between processes and to clients as JSON, under the names that they have here. All times are
milliseconds; processor time is that of the thread that answers, and None where it was not measured: to look
at that clock takes a system call.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

SEGMENTS_SHOWN_MAX = 50
"""Segments of one node that an explanation has in full."""


class Step(msgspec.Struct, frozen=True, gc=False):
    name: str
    ms: float
    cpu_ms: float | None = None


class SegmentPart(msgspec.Struct, frozen=True):
    """A read's work on one segment.

    ``state``: growing or sealed. ``matching``: rows that are visible and that the filter matches, None if
    they were not counted; ``estimated``: how many that were at most, by the estimate of scalar indexes, None
    without one. ``filter``: how the filter was answered. ``pruned_by``: the statistics that show that no row
    matches or is near enough. ``methods``: how rows were compared, and why so. ``compared``: rows compared,
    over all queries; ``compared_is_estimate``: computed and not counted.
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


class NodeReport(msgspec.Struct, frozen=True):
    """The part of one query node in a read.

    ``what``: the kind of read. ``version``: that of the collection on the node; ``waited_ms``: until the
    read's timestamp was served. ``left_out``: segments that were not looked at, by reason. ``segments``: the
    first of ``segment_count`` that were; ``pruned``: how many of them had no row that can match
    or is near enough.
    """

    node_id: int
    what: str
    version: int
    segment_count: int
    pruned: int = 0
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    segments: tuple[SegmentPart, ...] = ()
    steps: tuple[Step, ...] = ()
    waited_ms: float = 0.0


class Explanation(msgspec.Struct, frozen=True):
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
    found = explanation
    waited = f", {found.waited_ms:.2f} ms of it waiting for the timestamp" if found.waited_ms else ""
    cpu = "" if found.cpu_ms is None else f", {found.cpu_ms:.2f} ms of processor time"
    lines = [f"{found.request}: {found.ms:.2f} ms{cpu}{waited}"]
    lines += [f"  {name}: {text}" for name, text in found.facts.items()]
    _add_steps(found.steps, "  ", lines)
    for node in found.nodes:
        _add_node(node, lines)
    return "\n".join(lines)


def _add_steps(steps: tuple[Step, ...], indent: str, lines: list[str]) -> None:
    lines += [
        f"{indent}{step.ms:7.2f} ms  {step.name}"
        if step.cpu_ms is None
        else f"{indent}{step.ms:7.2f} ms  {step.cpu_ms:7.2f} ms cpu  {step.name}"
        for step in steps
    ]


def _add_node(node: NodeReport, lines: list[str]) -> None:
    waited = f", waited {node.waited_ms:.2f} ms for the timestamp" if node.waited_ms else ""
    lines.append(f"  node {node.node_id}: {node.what}, version {node.version}{waited}")
    _add_steps(node.steps, "    ", lines)
    pruned = f", {node.pruned} of them pruned" if node.pruned else ""
    lines.append(f"    segments considered: {node.segment_count}{pruned}")
    for reason, count in node.left_out.items():
        lines.append(f"    segments left out: {count}, {reason}")
    for segment in node.segments:
        _add_segment(segment, lines)
    if node.segment_count > len(node.segments):
        lines.append(f"    {node.segment_count - len(node.segments):,} more segments")


def _add_segment(part: SegmentPart, lines: list[str]) -> None:
    lines.append(f"    segment {part.segment_id} ({part.state}, {part.rows:,} rows): {part.ms:.2f} ms")
    if part.pruned_by:
        lines.append(f"      pruned: {part.pruned_by}")
        return
    if part.matching is not None:
        share = 100 * part.matching / max(1, part.rows)
        estimated = "" if part.estimated is None else f", estimated: at most {part.estimated:,}"
        lines.append(f"      rows to choose from: {part.matching:,} ({share:.1f} %){estimated}")
    if part.filter:
        lines.append(f"      filter: {part.filter}")
    lines.extend(f"      {method}" for method in part.methods)
    if part.compared:
        about = "about " if part.compared_is_estimate else ""
        lines.append(f"      rows compared: {about}{part.compared:,}")
