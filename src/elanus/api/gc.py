"""Garbage collection between the roles: what is to be swept, and the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable
from elanus.core.gc import SweepRules, Verdict
from elanus.core.ids import BuildID, SegmentID


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """List the objects below ``prefix`` and delete the garbage; without ``delete``, only report it."""

    prefix: str
    rules: SweepRules
    delete: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """Objects below one prefix with one verdict, and some of their paths."""

    prefix: str
    verdict: Verdict
    objects: int
    bytes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The result for one prefix."""

    prefix: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class IndexReferences:
    """Index files that are in use, and which builds may still add one (see `SweepRules`)."""

    files: tuple[str, ...]
    unfinished: Mapping[BuildID, int]
    builds_below: int


A_READER = "a reader"
"""The holder of a pin that has no name."""


class GcState(StrEnum):
    IDLE = "idle"
    LOOKING = "reading what is in use"
    SWEEPING = "sweeping"
    RECORDING = "recording"


@dataclass(frozen=True, slots=True)
class PinnedSegment:
    """A dropped segment whose files are kept. ``until_ms``: the earliest time they may be deleted, in UTC, if
    pins are not released before they expire; ``read_by`` says who still reads it, "" when nobody does.
    ``bytes``: of its rows."""

    segment_id: SegmentID
    collection_id: int
    bytes: int
    dropped_ms: int
    until_ms: int
    read_by: str


@dataclass(frozen=True, slots=True)
class HeldFiles:
    """Files that a pin or the clones of a collection keep, whatever happens to their own collection.

    ``holder`` is for people. ``until_ms``: UTC; 0: until it is released or dropped. ``bytes``: of the rows of
    clones, 0 where it is not known. ``since_ms``: the moment that is read, UTC; 0 where it is not known.
    """

    holder: str
    collection_id: int
    until_ms: int
    bytes: int
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class GcReport:
    """One round. ``error`` is set when the round did not complete; the next one continues. ``held``: what
    snapshots and clones keep."""

    started_ms: int
    took_ms: int
    deleted: bool
    cause: str
    findings: tuple[Finding, ...]
    pinned: tuple[PinnedSegment, ...]
    segments_reclaimed: int
    records_forgotten: int
    error: str = ""
    held: tuple[HeldFiles, ...] = ()

    @property
    def reclaimed_bytes(self) -> int:
        return sum(f.bytes for f in self.findings if f.verdict.goes) if self.deleted else 0


@dataclass(frozen=True, slots=True)
class GcStatus:
    """``swept``: the prefixes that the running round has completed. ``rounds`` counts the rounds that have
    ended, ``last`` is the latest of them. ``waiting_bytes`` belong to dropped segments whose files
    still exist; ``reclaimed_bytes`` counts since the coordinator started."""

    state: GcState
    swept: tuple[str, ...]
    rounds: int
    waiting_bytes: int
    reclaimed_bytes: int
    last: GcReport | None


class SweeperApi(Protocol):
    """The interface of the process that has Spark towards datacoord."""

    @order_of("datacoord")
    @repeatable
    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        """Run as a job; return at its end. May be repeated: what is deleted stays deleted.

        Raises `Cancelled` for a cancelled job, `Internal` for a failed one.
        """
        ...


class GcCalls(Protocol):
    """The calls of datacoord about garbage collection."""

    @repeatable
    async def collect_garbage(self, delete: bool) -> None:
        """Begin a round of garbage collection after the one that is running. Without ``delete``, it only
        reports what would be deleted. Returns immediately; `gc_status` shows the progress."""
        ...

    @repeatable
    async def gc_status(self) -> GcStatus: ...
