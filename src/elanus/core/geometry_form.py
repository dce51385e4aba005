"""The nesting and the types of geometries, checked before the geometry library reads them.

The library reads a collection in a collection by recursion. Half a megabyte of text is enough for more levels
than a thread's stack has room for, and an overflow of the stack ends the process. Curves it can read, but not
compare, so a single one would make filters on all rows of its segment fail.
"""

from __future__ import annotations

import struct

LEVELS_MAX = 250
"""Levels of parentheses in a text, and of collections in a binary."""
TOO_DEEP = f"it is nested too deeply: at most {LEVELS_MAX} levels are read"
CURVED = "curves are not supported: use lines and polygons"

_HAS_Z, _HAS_M, _HAS_SRID = 0x80000000, 0x40000000, 0x20000000
_SIMPLE = range(1, 4)
_POINT, _LINE = 1, 2
_COLLECTIONS = range(4, 8)
_CURVES = range(8, 13)


def fault_of_text(text: str) -> str | None:
    """Return why a Well-Known Text may not be read; None if nothing is wrong with its nesting."""
    if text.count("(") <= LEVELS_MAX:
        return None
    level = 0
    for character in text:
        if character == "(":
            level += 1
            if level > LEVELS_MAX:
                return TOO_DEEP
        elif character == ")":
            level -= 1
    return None


def fault_of_binary(data: bytes) -> str | None:
    """Return why a Well-Known Binary may not be read; None for others, even if they are no geometry."""
    try:
        return _walk(data)
    except struct.error:  # the bytes end before the geometry does
        return None


def _walk(data: bytes) -> str | None:
    """Visit the geometries of a binary in order. Raises `struct.error` where it ends too early."""
    place, order = 0, "<"
    missing = [1]
    while missing:
        if not missing[-1]:
            missing.pop()
            continue
        missing[-1] -= 1
        (mark,) = struct.unpack_from("B", data, place)
        order = {0: ">", 1: "<"}.get(mark, order)
        (code,) = struct.unpack_from(order + "I", data, place + 1)
        place += 5 + (4 if code & _HAS_SRID else 0)
        kind = (code & 0xFFFF) % 1000
        if kind in _COLLECTIONS:
            missing.append(_count(data, place, order))
            place += 4
            if len(missing) > LEVELS_MAX:
                return TOO_DEEP
        elif kind in _SIMPLE:
            place = _end(data, place, order, kind, _point_bytes(code))
        else:
            return CURVED if kind in _CURVES else None
    return None


def _point_bytes(code: int) -> int:
    """``code``: of a type, which says in one of two ways whether points have a Z and an M."""
    extra = (code & 0xFFFF) // 1000
    return 8 * (2 + bool(code & _HAS_Z or extra in (1, 3)) + bool(code & _HAS_M or extra in (2, 3)))


def _end(data: bytes, place: int, order: str, kind: int, point_bytes: int) -> int:
    """Return where a point, line or polygon ends whose coordinates or counts begin at ``place``."""
    if kind == _POINT:
        return place + point_bytes
    if kind == _LINE:
        return place + 4 + _count(data, place, order) * point_bytes
    rings = _count(data, place, order)
    place += 4
    for _ in range(rings):
        place += 4 + _count(data, place, order) * point_bytes
    return place


def _count(data: bytes, place: int, order: str) -> int:
    (count,) = struct.unpack_from(order + "I", data, place)
    return int(count)
