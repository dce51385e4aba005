"""Giving memory back to the system.

When a segment goes, what it held is free inside the process first: Arrow's pool and glibc's heap keep
freed memory for the next allocation. After a large release that next allocation may be long in coming, so
both are told to let go, once the last read that held the segment has ended.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence

import pyarrow as pa

from elanus.querynode.block import Block

WORTH_RETURNING_BYTES = 32 * 1024 * 1024


def return_free_memory() -> None:
    """Return what is free to the system. Takes milliseconds with a large heap: not for hot paths."""
    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc has it, other C libraries do not
        malloc_trim(0)


def when_gone(blocks: Sequence[Block], then: Callable[[], None]) -> None:
    """Call ``then`` when the last of these blocks is freed, in the thread that let go of it.

    Blocks that do not amount to much are not waited for.
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
