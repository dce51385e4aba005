"""The judge's record of what the alias may mean, and its check of writes through the alias.

Clients switch the alias one at a time (`AliasMeanings.turn`). A switch that failed may have taken effect or
may still take effect, so the collection it asked for stays possible from then on. A write through the alias
may go to any collection that the alias could mean at some moment between the write's beginning and its end.

Reads are not checked against this record: a proxy that has not noticed the loss of its session still reads
what the alias meant before. Its writes do not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from elanus.core.invariants import InvariantBroken

ALIAS = "either"
"""The alias that the runs use: clients pass it as a collection name."""


class AliasMeanings:
    """The possible meanings of the alias over time, as collection names; "" means no collection."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._settled = ""
        self._unsure: set[str] = set()
        self._history = [frozenset({""})]

    @asynccontextmanager
    async def turn(self, meaning: str) -> AsyncIterator[None]:
        """Switch the alias: it may have this meaning during the block, and has it once the block succeeds."""
        async with self._turn:
            self._note(meaning)
            try:
                yield
            except BaseException:
                self._unsure.add(meaning)
                raise
            self._settled = meaning
            self._note()

    def _note(self, *more: str) -> None:
        self._history.append(frozenset({self._settled, *self._unsure, *more}))

    def begin(self) -> int:
        """Record that a write begins. Return the value to pass to `check` once the write is acknowledged."""
        return len(self._history) - 1

    def check(self, begun: int, collection: str, keys: tuple[int, ...]) -> None:
        """Check where a write through the alias went.

        Raises `InvariantBroken` when the alias could not mean that collection at any moment of the write.
        """
        possible = frozenset[str]().union(*self._history[begun:])
        if collection not in possible:
            meant = sorted(possible - {""})
            raise InvariantBroken(
                "DDL2", f"a write to {ALIAS} went to {collection}; it meant one of {meant}", keys
            )
