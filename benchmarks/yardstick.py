"""How fast the machine is at this moment: a fixed piece of work, timed before every measure.

One system is asked after the other, on a machine that may be doing other things as well. Where the
yardstick differs between two systems, so would their figures, and the page shows by how much. The work is
hashing, one thread per core: threads that need not wait for each other get what the machine has left, and
no more.
"""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

BLOCK = bytes(1_000_000)
LENGTH_S = 0.25


def machine_speed(length_s: float = LENGTH_S) -> float:
    """Megabytes (10⁶ bytes) hashed with SHA-256 per second, by all cores together, for `length_s` seconds."""
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as threads:
        return sum(threads.map(_one_core, [length_s] * cores))


def _one_core(length_s: float) -> float:
    blocks, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < length_s or not blocks:
        hashlib.sha256(BLOCK).digest()
        blocks += 1
    return blocks / elapsed
