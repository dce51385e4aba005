"""Where all chance of a run comes from: one stream of random numbers per purpose, all from the seed.

Streams are apart, so that leaving one kind of fault out (to find out which one matters) disturbs the
others as little as can be. A stream is seeded by a string through SHA-512, never by ``hash``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what goes wrong. Probabilities per event; ``disasters`` and ``strikes`` per run.

    ``torn``: a writer dies while the log has its entries.
    """

    lost: float = 0.01
    doubled: float = 0.02
    slow: float = 0.02
    disk_full: float = 0.003
    job_failed: float = 0.05
    torn: float = 0.01
    disasters: int = 6
    strikes: int = 5


NO_FAULTS = Faults(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)


class Chance:
    """``quiet``: from now on nothing goes wrong, and nothing is slow."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self._seed = seed
        self.faults = faults

    def quiet(self) -> None:
        self.faults = NO_FAULTS

    def stream(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed}/{purpose}")


class Delays:
    """How long things take: mostly next to nothing, now and then long."""

    def __init__(self, chance: Chance, purpose: str, usual_s: float, slow_s: float) -> None:
        self._chance = chance
        self._random = chance.stream(purpose)
        self._usual_s = usual_s
        self._slow_s = slow_s

    def next_s(self) -> float:
        if self._random.random() < self._chance.faults.slow:
            return self._random.uniform(self._usual_s, self._slow_s)
        return self._random.random() * self._usual_s
