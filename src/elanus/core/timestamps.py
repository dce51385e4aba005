"""Hybrid timestamps: 46 bits of UTC milliseconds, then 18 bits of logical counter.

A timestamp is an ``int`` below 2**64, made and read only by the functions of this module.
Timestamps of one system come from one oracle (`elanus.core.oracle`), so comparing two of them
orders the events they stamp. Zero never stamps an event; it stands for "none".
"""

from __future__ import annotations

from typing import NewType

Timestamp = NewType("Timestamp", int)

LOGICAL_BITS = 18
LOGICAL_MASK = (1 << LOGICAL_BITS) - 1
NO_TIMESTAMP = Timestamp(0)
MAX_TIMESTAMP = Timestamp((1 << 63) - 1)
"""Above every timestamp the oracle will hand out; still fits a signed 64-bit column. A row with this
timestamp is visible to no read."""


def compose(physical_ms: int, logical: int = 0) -> Timestamp:
    """Return the timestamp of a UTC millisecond and a logical counter in [0, 2**18)."""
    if not 0 <= logical <= LOGICAL_MASK:
        raise ValueError(f"logical part {logical} is outside [0, {LOGICAL_MASK}]")
    return Timestamp((physical_ms << LOGICAL_BITS) | logical)


def physical_ms(ts: Timestamp) -> int:
    """Return the UTC milliseconds in a timestamp."""
    return ts >> LOGICAL_BITS


def logical(ts: Timestamp) -> int:
    """Return the logical counter in a timestamp."""
    return ts & LOGICAL_MASK


def after(ts: Timestamp) -> Timestamp:
    """Return the smallest timestamp above."""
    return Timestamp(ts + 1)


def before(ts: Timestamp) -> Timestamp:
    """Return the largest timestamp strictly below ``ts``."""
    return Timestamp(ts - 1)


def minus_ms(ts: Timestamp, duration_ms: int) -> Timestamp:
    """``ts`` moved back by a duration, never below zero."""
    return Timestamp(max(0, ts - (duration_ms << LOGICAL_BITS)))


def plus_ms(ts: Timestamp, duration_ms: int) -> Timestamp:
    """``ts`` moved forward by a duration."""
    return Timestamp(ts + (duration_ms << LOGICAL_BITS))


def lag_ms(now_ms: int, ts: Timestamp) -> int:
    """Return how far ``ts`` is behind a wall clock reading, in milliseconds (negative: ahead of it)."""
    return now_ms - physical_ms(ts)
