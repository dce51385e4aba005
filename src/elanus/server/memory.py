"""How the allocator returns memory to the system.

A vector database allocates and frees large blocks all the time: a request of megabytes, a growing segment
of hundreds. glibc adapts its thresholds to that by keeping freed blocks; as a result the memory of a segment
stays with the process after its handoff, and large inserts take 2 ms at one time and 5 ms at another. Fixed
thresholds make both steady. Does nothing on other C libraries.
"""

from __future__ import annotations

import ctypes
import ctypes.util

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MMAP_THRESHOLD_BYTES = 1 << 20
_TRIM_THRESHOLD_BYTES = 8 << 20
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
