"""How the allocator gives memory back.

A vector database allocates and frees large blocks all the time: a request of megabytes, a growing segment
of hundreds. glibc adapts its thresholds to that by keeping freed blocks for itself; then a handed-over
segment's memory stays with the process, and large inserts take now 2, now 5 ms. Fixed thresholds make both
even. Elsewhere than on glibc nothing is done.
"""

from __future__ import annotations

import ctypes
import ctypes.util

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MMAP_THRESHOLD_BYTES = 1 << 20
_TRIM_THRESHOLD_BYTES = 8 << 20
_ARENAS_MAX = 4


def fix_allocator() -> None:
    """Call once, before anything large is allocated."""
    name = ctypes.util.find_library("c")
    library = ctypes.CDLL(name) if name else None
    if library is None or not hasattr(library, "mallopt"):
        return
    library.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    library.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    library.mallopt(_M_ARENA_MAX, _ARENAS_MAX)
