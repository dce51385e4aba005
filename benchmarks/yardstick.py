"""How fast the machine is at this moment: a fixed piece of work, timed before and after each system.

Systems are measured one after the other, on a machine that may be doing other things as well. When the
yardstick differs between two systems, so would their figures, and the page shows by how much.
"""

from __future__ import annotations

import time

import numpy as np

SIZE = 512
LENGTH_S = 1.0


def machine_speed(length_s: float = LENGTH_S) -> float:
    """Products of two 512 × 512 float32 matrices per second, on all cores, for `length_s` seconds."""
    left, right = np.random.default_rng(0).random((2, SIZE, SIZE), dtype=np.float32)
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < length_s:
        np.matmul(left, right)
        count += 1
    return count / (time.perf_counter() - begun)
