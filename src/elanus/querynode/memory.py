"""Returning memory to the operating system.

When a segment is released, its memory is at first free only inside the process: Arrow's pool and glibc's heap
keep freed memory for the next allocation. After a large release that allocation may not follow for a long
time. So both are asked to return free memory, once the last read that held the segment has ended.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence

import pyarrow as pa

from elanus.querynode.block import Block

WORTH_RETURNING_BYTES = 32 * 1024 * 1024


def return_free_memory() -> None:
    """Return free memory to the system. Takes milliseconds with a large heap: not for hot paths."""
    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc has it, other C libraries do not
        malloc_trim(0)


def when_gone(blocks: Sequence[Block], then: Callable[[], None]) -> None:
    """Call ``then`` when the last of these blocks is freed, in the thread that dropped it.

    Nothing is called if the blocks together are smaller than `WORTH_RETURNING_BYTES`.
    """
    if sum(block.memory_bytes for block in blocks) < WORTH_RETURNING_BYTES:
        return
    left = list(range(len(blocks)))

    def one_gone() -> None:
        left.pop()
        if not left:
            then()

    for block in blocks:
        weakref.finalize(block, one_gone).atexit = False
