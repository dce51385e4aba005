"""Consistency levels, and the guarantee timestamp each one requires.

A read is answered at one *read timestamp*. It sees every write stamped at or below it. The consistency level
sets a lower bound for that timestamp: the *guarantee timestamp*.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from elanus.core.errors import InvalidParameter, TimestampTooOld
from elanus.core.timestamps import MAX_TIMESTAMP, NO_TIMESTAMP, Timestamp, lag_ms, minus_ms, physical_ms


class ConsistencyLevel(IntEnum):
    """The wire's numbers."""

    STRONG = 0
    SESSION = 1
    BOUNDED = 2
    EVENTUALLY = 3
    CUSTOMIZED = 4


WIRE_STRONG = 0
WIRE_EVENTUALLY = 1
WIRE_BOUNDED = 2


@dataclass(frozen=True, slots=True)
class ReadConsistency:
    """The consistency that a read request asks for. ``level`` None: use the collection's own.

    ``guarantee_ts`` is the raw value from the wire: 0, 1 and 2 stand for strong, eventually and bounded;
    larger ones are timestamps (session, customized). ``pinned``: the read is one page of an iterator. All
    its pages are answered as of one moment, which the first page's response contains and the other requests
    send back as their timestamp. ``travel_ts``: the past moment that a read asks for (0: none). ``client``:
    the proxy's identification of the client ("": unknown).
    """

    level: ConsistencyLevel | None = None
    guarantee_ts: int = WIRE_STRONG
    pinned: bool = False
    travel_ts: int = 0
    client: str = ""

    @property
    def moment(self) -> Timestamp | None:
        """The moment a pinned read is answered as of; ``None`` when the server is to choose it."""
        if self.travel_ts:
            return Timestamp(self.travel_ts)
        return Timestamp(self.guarantee_ts) if self.pinned and self.guarantee_ts > WIRE_BOUNDED else None


def guarantee_timestamp(
    read: ReadConsistency,
    collection_level: ConsistencyLevel,
    now: Timestamp,
    graceful_ms: int,
    own_write: Timestamp = NO_TIMESTAMP,
) -> Timestamp:
    """Return the lowest timestamp at which a read may be answered.

    ``now`` is a fresh timestamp, taken after the request arrived. Rules of the wire (reference 2.3): a
    level in the request applies, or the collection's if the request says so; Session and Customized
    use the timestamp the client sent, even one ahead of ``now``; with no level at all the special values 0, 1
    and 2 apply. For a pinned read it is the moment the read is pinned to, whatever the level.

    A Bounded read also sees ``own_write``, the last write of the same client.
    """
    if read.moment is not None:
        return read.moment
    level = collection_level if read.level is None else read.level
    if level is ConsistencyLevel.STRONG:
        return now
    if level is ConsistencyLevel.BOUNDED:
        return max(own_write, minus_ms(now, graceful_ms))
    if level is ConsistencyLevel.EVENTUALLY:
        return Timestamp(WIRE_EVENTUALLY)
    if read.guarantee_ts == WIRE_STRONG or read.guarantee_ts >= MAX_TIMESTAMP:
        return now  # some clients send the largest number there is and mean Strong
    if read.guarantee_ts == WIRE_BOUNDED:
        return max(own_write, minus_ms(now, graceful_ms))
    return Timestamp(read.guarantee_ts)


def needs_fresh_timestamp(read: ReadConsistency, collection_level: ConsistencyLevel) -> bool:
    """Whether `guarantee_timestamp` needs an exact current timestamp.

    It does for a Strong read, and if the client's timestamp is compared with the current one. For other
    reads, milliseconds make no difference.
    """
    if read.moment is not None:
        return True
    level = collection_level if read.level is None else read.level
    if level in (ConsistencyLevel.BOUNDED, ConsistencyLevel.EVENTUALLY):
        return False
    return level is ConsistencyLevel.STRONG or read.guarantee_ts != WIRE_BOUNDED


def oldest_weak_moment(now: Timestamp, retention_s: float) -> Timestamp:
    """Return the oldest moment as of which a read may be answered that did not ask for a moment.

    Compaction removes for good what was deleted ``retention_s`` ago. A node that has just started serves
    older moments first; such a read has to wait until the node is past them. A quarter of the retention is
    left for the read itself.
    """
    return minus_ms(now, round(750 * retention_s))


def check_reachable(guarantee: Timestamp, now: Timestamp, wait_s: float) -> None:
    """Raises `InvalidParameter` for a guarantee too far ahead of ``now`` for a read that waits ``wait_s``."""
    ahead_s = -lag_ms(physical_ms(now), guarantee) / 1000
    if ahead_s > wait_s:
        raise InvalidParameter(
            f"guarantee_timestamp {guarantee} (UTC ms {physical_ms(guarantee)}) is {ahead_s:g} s in the "
            f"future, and this read waits {wait_s:g} s at most: send a timestamp that a write returned, "
            "or give the read more time (its timeout and proxy.read_timeout_s)"
        )


def check_moment(moment: Timestamp, created: Timestamp, now: Timestamp, retention_s: float) -> None:
    """Check whether a read can be pinned to a moment, in a collection created at ``created``.

    Raises `InvalidParameter` for a moment in the future or before the collection was created, and
    `TimestampTooOld` for one whose deleted rows may already be removed permanently.
    """
    asked = f"the read is pinned to timestamp {moment} (UTC ms {physical_ms(moment)})"
    back_s = lag_ms(physical_ms(now), moment) / 1000
    if moment > now:
        raise InvalidParameter(
            f"{asked}, {-back_s:g} s in the future: the latest moment is {now} (UTC ms {physical_ms(now)})"
        )
    if moment < minus_ms(now, round(1000 * retention_s)):
        raise TimestampTooOld(
            f"{asked}, {back_s:g} s back, and deleted rows are kept for {retention_s:g} s "
            "(datacoord.retention_s): read a later moment, or begin a new iterator"
        )
    if moment < created:
        raise InvalidParameter(
            f"{asked}, before the collection was created at {created} (UTC ms {physical_ms(created)})"
        )
