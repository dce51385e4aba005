"""The vchannels of a collection whose log cannot be read, and whether trying again can help.

A damaged file stops every reader that comes to it, and a log that was put back to an older copy every reader
that begins beyond its end. A log that begins after the position that is needed is
different: it may have been trimmed under a reader that was slow, or that began at an older checkpoint. The
log is never trimmed beyond the checkpoint that datacoord has, so the vchannel is followed again, from that
checkpoint. If this fails too, and again, always from one checkpoint, then the log has lost what is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elanus.core.faults import LogFault
from elanus.log.port import REWOUND_REMEDY, CorruptLog, RewoundLog, TrimmedLog
from elanus.querynode.follower import Follower

TRIES = 3
"""The first failure may meet a reader that had fallen behind, and the second may begin at a checkpoint that
was looked up before the first. The checkpoint of the third was looked up after the log had been trimmed."""
_LOST = (
    "the log has lost what is still needed: restore the log from a copy and start the server again, or drop "
    "the collection"
)
_DAMAGED = "restore the file from a copy of the data directory, or drop the collection"
_UNREADABLE = "see that the log's files can be read; it is tried again"


@dataclass(frozen=True, slots=True)
class _Failure:
    """``start``: the checkpoint's position; ``times``: how many times in a row nothing was read from it.
    ``position``: how far the log was read."""

    start: int
    times: int
    position: int


class LogTroubles:
    """``texts``: for each vchannel whose log cannot be read, what is wrong with it and what to do."""

    def __init__(self) -> None:
        self.texts: Mapping[str, str] = {}
        self._failures: dict[str, _Failure] = {}

    def failed(self, follower: Follower) -> None:
        """Note that a vchannel cannot be followed any more."""
        fault, vchannel, start = follower.log_fault, follower.vchannel, follower.start_position
        if fault is None:
            return
        before = self._failures.get(vchannel)
        has_repeated = before is not None and before.start == start and not follower.has_moved
        times = before.times + 1 if before is not None and has_repeated else 1
        self._failures[vchannel] = _Failure(start, times, follower.position)
        if isinstance(fault, (CorruptLog, RewoundLog)) or times >= TRIES:
            self.texts = {**self.texts, vchannel: _text(vchannel, fault)}

    def is_proven(self, follower: Follower) -> bool:
        """Whether the log can be read, as far as is known: if it could not be read twice, or is damaged, only
        once it has been read beyond that place. Nothing is loaded for a vchannel before."""
        failure = self._failures.get(follower.vchannel)
        if failure is None or follower.position > failure.position:
            return True
        return failure.times == 1 and follower.vchannel not in self.texts

    def joined(self, follower: Follower) -> None:
        """Forget the troubles of a vchannel that has caught up, if it was read beyond them."""
        failure = self._failures.get(follower.vchannel)
        if failure is not None and follower.position > failure.position:
            del self._failures[follower.vchannel]
            self.texts = {v: text for v, text in self.texts.items() if v != follower.vchannel}


def _text(vchannel: str, fault: LogFault) -> str:
    remedy = _UNREADABLE
    if isinstance(fault, CorruptLog):
        remedy = _DAMAGED
    elif isinstance(fault, TrimmedLog):
        remedy = _LOST
    elif isinstance(fault, RewoundLog):
        remedy = REWOUND_REMEDY
    return f"the log of vchannel {vchannel} cannot be read ({type(fault).__name__}: {fault}): {remedy}"
