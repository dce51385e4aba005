"""The lowest checkpoint position on each pchannel, kept up to date as vchannels change.

The log is trimmed to it every few seconds. A pchannel may have thousands of vchannels, and most of them have
not moved since the last look: so a change costs the logarithm of their number, and a look almost nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from elanus.core.channels import pchannel_of

_STALE_MIN = 16
"""A heap is rebuilt once it has this many stale entries, and more of them than current ones."""


class _Pchannel:
    """``heap`` has an entry for each current position, and stale ones of positions that were replaced."""

    __slots__ = ("current", "heap")

    def __init__(self) -> None:
        self.current: dict[str, int] = {}
        self.heap: list[tuple[int, str]] = []

    def place(self, vchannel: str, position: int) -> None:
        self.current[vchannel] = position
        heappush(self.heap, (position, vchannel))
        if len(self.heap) > 2 * len(self.current) + _STALE_MIN:
            self.heap = [(at, name) for name, at in self.current.items()]
            heapify(self.heap)

    def lowest(self) -> int:
        while True:
            position, vchannel = self.heap[0]
            if self.current.get(vchannel) == position:
                return position
            heappop(self.heap)


class LowestPositions:
    """For one thread."""

    def __init__(self) -> None:
        self._pchannels: dict[str, _Pchannel] = {}

    def place(self, vchannel: str, position: int) -> None:
        """Note where a vchannel's checkpoint is."""
        pchannel = self._pchannels.setdefault(pchannel_of(vchannel), _Pchannel())
        if pchannel.current.get(vchannel) != position:
            pchannel.place(vchannel, position)

    def remove(self, vchannel: str) -> None:
        """Leave a vchannel out from now on."""
        name = pchannel_of(vchannel)
        pchannel = self._pchannels.get(name)
        if pchannel is not None and pchannel.current.pop(vchannel, None) is not None and not pchannel.current:
            del self._pchannels[name]

    def of(self, pchannel: str) -> int | None:
        """Return the lowest position of the pchannel's vchannels; None if it has none."""
        found = self._pchannels.get(pchannel)
        return None if found is None else found.lowest()

    def highest(self) -> dict[str, int]:
        """Return the highest position of each pchannel that has vchannels. Looks at all of them."""
        return {name: max(found.current.values()) for name, found in self._pchannels.items()}

    def all(self) -> dict[str, int]:
        """Return the lowest position of each pchannel that has vchannels."""
        return {name: found.lowest() for name, found in self._pchannels.items()}
