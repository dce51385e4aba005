"""Garbage collection: which objects of the store may be deleted, and why. Pure rules; nothing here deletes.

An object stays if something refers to it, or if something may still refer to it later. The second condition
is the hard one, and age cannot decide it: jobs write files long before they commit, clocks are wrong, and a
listing is outdated when it ends. So attempts are numbered (`elanus.core.attempts`): an object whose number is
below that of every open attempt, and that nothing refers to *now*, will never be referred to. A verdict, once
true, stays true: if a collector dies half-way, the next one continues, and one that wakes up late does no
harm. The order in which objects are listed and references are read does not matter either.

Tolerances are added for the sake of users: dropped and unreferenced objects are kept for a while anyway.
Objects modified in the future count as young. An object without a number (written by another release, or by
hand) has only its age, and is kept for the longer of the tolerance and the commit deadline. An object whose
name Elanus does not use is never deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elanus.core.attempts import NO_ATTEMPT
from elanus.core.ids import BuildID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms


class Verdict(StrEnum):
    """Why an object stays or is deleted. The texts are for people."""

    NAMED = "in use"
    PINNED = "dropped, still within drop_tolerance or being read"
    OPEN = "its job may still commit it"
    YOUNG = "within missing_tolerance"
    FOREIGN = "not a name that Elanus gives"
    DROPPED = "dropped"
    SUPERSEDED = "nothing refers to it"

    @property
    def goes(self) -> bool:
        return self in (Verdict.DROPPED, Verdict.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parts of an object's path. ``owner``: the segment's id, or the vchannel's name for its deletes;
    ``build_id`` and ``version``: of an index file, 0 otherwise."""

    owner: str
    attempt: int = NO_ATTEMPT
    build_id: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class SweepRules:
    """All inputs to the verdicts on objects below one prefix, as of one moment.

    ``named``: `digests` of the paths that something refers to; those stay. ``kept`` and ``gone``: owners
    whose other objects all stay, or are all deleted. ``attempts_below``: attempts with a lower number can no
    longer commit; ``builds_below``: no index build has this id or a higher one; ``unfinished``: builds that
    may still finish, with the lowest version that counts. Times are UTC milliseconds.
    """

    named: bytes
    kept: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    attempts_below: int = NO_ATTEMPT
    builds_below: int = 0
    unfinished: Mapping[BuildID, int] = field(default_factory=dict)
    modified_before_ms: float = 0
    unnumbered_before_ms: float = 0


def verdict(name: ObjectName | None, modified_ms: float, rules: SweepRules) -> Verdict:
    """Return the verdict on an object that is not named. ``name`` None: Elanus does not use such a path."""
    if name is None:
        return Verdict.FOREIGN
    if name.owner in rules.kept:
        return Verdict.PINNED
    if name.build_id:
        if _may_finish(name, rules):
            return Verdict.OPEN
        numbered = True
    elif name.owner in rules.gone:
        return Verdict.DROPPED
    else:
        numbered = name.attempt != NO_ATTEMPT
        if numbered and name.attempt >= rules.attempts_below:
            return Verdict.OPEN
    before_ms = rules.modified_before_ms if numbered else rules.unnumbered_before_ms
    return Verdict.SUPERSEDED if modified_ms < before_ms else Verdict.YOUNG


def _may_finish(name: ObjectName, rules: SweepRules) -> bool:
    if name.build_id >= rules.builds_below:
        return True
    counts_from = rules.unfinished.get(BuildID(name.build_id))
    return counts_from is not None and name.version >= counts_from


# what was dropped


@dataclass(frozen=True, slots=True)
class GcPolicy:
    """How long objects and records are kept although they could be deleted, in seconds.

    ``drop_tolerance_s``: files of dropped segments. ``missing_tolerance_s``: objects nothing refers to.
    ``commit_deadline_s``: how long an attempt may take to commit. ``record_retention_s``: records of
    dropped segments whose files are gone.
    """

    drop_tolerance_s: float
    missing_tolerance_s: float
    commit_deadline_s: float
    record_retention_s: float

    def modified_before_ms(self, now_ms: float) -> float:
        return now_ms - self.missing_tolerance_s * 1000

    def unnumbered_before_ms(self, now_ms: float) -> float:
        return now_ms - max(self.missing_tolerance_s, self.commit_deadline_s) * 1000


def keeps_files(info: SegmentInfo) -> bool:
    """Whether a dropped segment's files still have to be deleted."""
    return info.state is SegmentState.DROPPED and bool(info.manifest)


def expires_ms(dropped: Timestamp, policy: GcPolicy) -> float:
    """Return the time until which the files of a segment dropped at ``dropped`` are kept."""
    return physical_ms(dropped) + policy.drop_tolerance_s * 1000


def may_reclaim(info: SegmentInfo, now: Timestamp, policy: GcPolicy, held: frozenset[SegmentID]) -> bool:
    """Whether the files of a segment may be deleted. ``held``: segments that some query node still reads."""
    expired = physical_ms(now) >= expires_ms(info.dropped, policy)
    return keeps_files(info) and expired and info.segment_id not in held


def reads_through(dropped: Timestamp, checkpoint_ts: Timestamp | None) -> bool:
    """Whether log readers have passed all rows of a segment that was dropped at ``dropped``.

    ``checkpoint_ts``: the checkpoint of its vchannel, None if the vchannel is dropped.
    """
    return checkpoint_ts is None or checkpoint_ts >= dropped


def may_forget(info: SegmentInfo, checkpoint_ts: Timestamp | None, now: Timestamp, policy: GcPolicy) -> bool:
    """Whether the record of a dropped segment may be deleted.

    It may if its files are gone, log readers no longer need it in order to skip the segment's rows, and its
    retention time has passed.
    """
    if info.state is not SegmentState.DROPPED or info.manifest or info.dropped == NO_TIMESTAMP:
        return False
    age_ms = physical_ms(now) - physical_ms(info.dropped)
    return age_ms >= policy.record_retention_s * 1000 and reads_through(info.dropped, checkpoint_ts)
