"""How the allocator returns memory to the system.

A vector database allocates and frees large blocks all the time: a request of megabytes, a growing segment
of hundreds. A block above the first threshold is mapped, and returned when it is freed. The system then has
to provide and clear every page of the next one, which takes 2 ms for 5 MB, twenty times as long as copying
them: as much as everything else that an insert of this size costs, for its request is copied some times. So
blocks of requests come from the heap, of which each arena keeps the second threshold. glibc's own thresholds
adapt to what is freed, and never return much more. The rest is returned when no more rows arrive, and when
segments are released (`elanus.querynode.memory`). Does nothing on other C libraries.
"""

from __future__ import annotations

import ctypes
import ctypes.util

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MMAP_THRESHOLD_BYTES = 32 << 20
"""The most that glibc accepts."""
_TRIM_THRESHOLD_BYTES = 32 << 20
_ARENAS_MAX = 4


def fix_allocator() -> None:
    """Set fixed thresholds. Call once, before anything large is allocated."""
    name = ctypes.util.find_library("c")
    library = ctypes.CDLL(name) if name else None
    if library is None or not hasattr(library, "mallopt"):
        return
    library.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    library.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    library.mallopt(_M_ARENA_MAX, _ARENAS_MAX)
