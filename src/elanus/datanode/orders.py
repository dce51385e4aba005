"""Orders to flush vchannels that have not begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from elanus.core.ids import SegmentID


@dataclass(slots=True)
class Order:
    """All orders for one vchannel: segments to complete, why, and for whom."""

    segment_ids: set[SegmentID] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def add(self, other: Order) -> None:
        self.segment_ids |= other.segment_ids
        self.causes |= other.causes
        self.waiting |= other.waiting


class Orders:
    """One merged order for each vchannel. Iterating yields the vchannels. Belongs to one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, Order] = {}
        self.arrived = asyncio.Event()
        """Set by every new order; the flusher clears it."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._pending)

    def add(self, vchannel: str, order: Order) -> None:
        self._pending.setdefault(vchannel, Order()).add(order)
        self.arrived.set()

    def take(self, is_due: Callable[[str], bool]) -> dict[str, Order]:
        """Remove and return the orders for the vchannels that are due."""
        due = {vchannel: order for vchannel, order in self._pending.items() if is_due(vchannel)}
        for vchannel in due:
            del self._pending[vchannel]
        return due

    def discard(self, vchannel: str) -> None:
        self._pending.pop(vchannel, None)

    def clear(self) -> None:
        self._pending.clear()
