"""Long loops in C, in pieces short enough for the other threads of the process.

A C function that visits a million Python objects keeps the interpreter's lock until it returns: a tenth of a
second in which the event loop does nothing. Between two pieces of a few milliseconds another thread can take
the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

PIECE_ROWS = 16 * 1024


def pieces(count: int) -> Iterator[slice]:
    """Yield slices that together cover ``count`` values, in order; one empty slice if there are none."""
    for begin in range(0, max(count, 1), PIECE_ROWS):
        yield slice(begin, min(begin + PIECE_ROWS, count))


def array_of(values: Any, make: Callable[[Any], pa.Array]) -> pa.Array:
    """Return ``make(values)``, made in pieces. ``values``: a sequence that can be sliced."""
    parts = [make(values[piece]) for piece in pieces(len(values))]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
