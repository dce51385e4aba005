"""Exact sets of 64-bit integers in the portable Roaring format (RoaringFormatSpec, extension for 64 bits).

The members of a container share their upper 48 bits. It holds the lower 16 of each, as a sorted array, as
65,536 bits or as runs; a part has the containers that share the upper 32 bits. Only the list of containers is
read into columns. Members stay in the bytes where they are, because few runs may stand for 2**64 of them, and
are looked up there for all values at once.

The bytes may come from anybody, so every position that they name is checked. The order of the members inside
of a container is not: a container that breaks it answers wrongly.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

PARTS_MAX = 1 << 18
"""Different upper 32 bits in one set."""
READ_MAX_BYTES = 64 << 20
"""The bytes of a set, with 128 for each of its parts and 64 for each of its containers."""
_PART_BYTES, _CONTAINER_BYTES = 128, 64
_PLAIN_COOKIE, _RUN_COOKIE = 12346, 12347
_OFFSETS_MIN = 4
"""A part with runs and fewer containers has no table of their offsets."""
_ARRAY_MAX, _BITS_BYTES = 4096, 8192
_ARRAY, _BITS, _RUNS = range(3)
_PART_MIN_BYTES = 12
_HEAD = struct.Struct("<III")
_LONG, _WORD = struct.Struct("<I"), struct.Struct("<H")

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class RoaringBitmap:
    """A set that was read from ``body``; equal to another of the same bytes."""

    def __init__(self, body: bytes) -> None:
        """Raises `ValueError`, which says what is wrong with the bytes."""
        self.body = body
        self._data = np.frombuffer(body, np.uint8)
        self._keys, self._kinds, self._starts, self._entries, self.members = _read(body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoaringBitmap) and self.body == other.body

    def __hash__(self) -> int:
        return hash(self.body)

    def contains(self, values: Longs) -> Mask:
        """Return which integers are members. shape (n,)"""
        found = np.zeros(len(values), np.bool_)
        if not len(self._keys):
            return found
        unsigned = values.astype("<i8", copy=False).view(np.uint64)
        upper = unsigned >> np.uint64(16)
        place = np.minimum(np.searchsorted(self._keys, upper), len(self._keys) - 1)
        rows = np.flatnonzero(self._keys[place] == upper)
        containers, low = place[rows], (unsigned[rows] & np.uint64(0xFFFF)).astype(np.int64)
        for kind, holds in ((_ARRAY, self._in_arrays), (_BITS, self._in_bits), (_RUNS, self._in_runs)):
            of_kind = np.flatnonzero(self._kinds[containers] == kind)
            if len(of_kind):
                found[rows[of_kind]] = holds(containers[of_kind], low[of_kind])
        return found

    def _in_arrays(self, containers: Longs, low: Longs) -> Mask:
        starts = self._starts[containers]
        before = self._entries_up_to(starts, self._entries[containers], 2, low)
        found: Mask = before > 0
        found[found] = _words(self._data, starts[found] + 2 * (before[found] - 1)) == low[found]
        return found

    def _in_bits(self, containers: Longs, low: Longs) -> Mask:
        octets = self._data[self._starts[containers] + (low >> 3)]
        return ((octets >> (low & 7).astype(np.uint8)) & 1).astype(np.bool_)

    def _in_runs(self, containers: Longs, low: Longs) -> Mask:
        starts = self._starts[containers] + 2
        before = self._entries_up_to(starts, self._entries[containers], 4, low)
        found: Mask = before > 0
        last = starts[found] + 4 * (before[found] - 1)
        found[found] = _words(self._data, last) + _words(self._data, last + 2) >= low[found]
        return found

    def _entries_up_to(self, starts: Longs, entries: Longs, width: int, low: Longs) -> Longs:
        """Return how many entries of each value's container are not larger than it, by binary search."""
        fewest, most = np.zeros_like(entries), entries.copy()
        while True:
            is_open = fewest < most
            if not is_open.any():
                return fewest
            middle = (fewest + most) >> 1
            entry = _words(self._data, np.where(is_open, starts + width * middle, starts))
            is_smaller = is_open & (entry <= low)
            most = np.where(is_open & ~is_smaller, middle, most)
            fewest = np.where(is_smaller, middle + 1, fewest)


class _Part(NamedTuple):
    """The containers that share the upper 32 bits, by the bytes at which something begins."""

    high: int
    start: int
    containers: int
    flags: int
    """Which containers have runs; 0: none has."""
    described: int
    """Key and members of each container."""
    table: int
    """The offset of each container; 0: they are few and follow one another."""
    first: int
    """The first container."""


def _read(body: bytes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int8], Longs, Longs, int]:
    """Return the keys, kinds, first bytes and entries of the containers, shapes (n,), and the set's size."""
    data = np.frombuffer(body, np.uint8)
    parts, untabled = _walked(body)
    columns = np.array(parts, np.int64).reshape(-1, len(_Part._fields))
    counts = columns[:, _Part._fields.index("containers")]
    firsts = np.cumsum(counts) - counts
    of_part = np.repeat(np.arange(len(parts)), counts)
    place = np.arange(len(of_part)) - firsts[of_part]
    high, start, _, flags, described, table, first = columns[of_part].T
    keys = high.astype(np.uint64) << np.uint64(16) | _words(data, described + 4 * place).astype(np.uint64)
    members = _words(data, described + 4 * place + 2) + 1
    flag = data[flags + (place >> 3)] >> (place & 7).astype(np.uint8)
    has_runs = (flags > 0) & (flag & 1 > 0)
    offsets = table + np.where(table > 0, 4 * place, 0)
    starts = start + _words(data, offsets) + (_words(data, offsets + 2) << 16)
    starts[table == 0] = untabled
    if len(starts) and starts.max() + 2 > len(body):
        raise ValueError("a container is beyond its end")
    entries = np.where(has_runs, _words(data, starts), members)
    kinds = np.where(has_runs, _RUNS, np.where(members <= _ARRAY_MAX, _ARRAY, _BITS)).astype(np.int8)
    sizes = np.where(has_runs, 2 + 4 * entries, np.where(members <= _ARRAY_MAX, 2 * members, _BITS_BYTES))
    due = np.where(place == 0, first, np.roll(starts + sizes, 1))
    if (starts != due).any():
        raise ValueError("its containers do not follow one another")
    if not (keys[1:] > keys[:-1]).all():
        raise ValueError("its containers are out of order")
    return keys, kinds, starts, entries, int(members.sum())


def _walked(body: bytes) -> tuple[list[_Part], list[int]]:
    """Return the parts, and where the containers of those without a table of offsets begin."""
    if len(body) < 8:
        raise ValueError(f"it has {len(body)} bytes, too few for the number of its parts")
    count = int.from_bytes(body[:8], "little")
    possible = min((len(body) - 8) // _PART_MIN_BYTES, PARTS_MAX)
    if count > possible:
        raise ValueError(f"it names {count} parts, more than {possible}")
    parts: list[_Part] = []
    untabled: list[int] = []
    position, read_bytes = 8, len(body) + count * _PART_BYTES
    for _ in range(count):
        try:
            part = _part(body, position)
            end = _end(body, part) if part.table else _follow(body, part, untabled)
        except (struct.error, IndexError):
            raise ValueError(f"the part at byte {position} ends too early") from None
        if end > len(body):
            raise ValueError(f"the part at byte {position} ends too early")
        read_bytes += part.containers * _CONTAINER_BYTES
        if read_bytes > READ_MAX_BYTES:
            raise ValueError(f"to read it takes more than {READ_MAX_BYTES} bytes")
        parts.append(part)
        position = end
    if position != len(body):
        raise ValueError(f"it has {len(body) - position} bytes too many")
    return parts, untabled


def _part(body: bytes, position: int) -> _Part:
    high, cookie, count = _HEAD.unpack_from(body, position)
    start = position + 4
    if cookie == _PLAIN_COOKIE:
        flags, described = 0, start + 8
    elif cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        flags = start + 4
        described = flags + (count + 7) // 8
    else:
        raise ValueError(f"the part at byte {position} has the cookie {cookie}")
    if count > 1 << 16:
        raise ValueError(f"the part at byte {position} names {count} containers")
    has_table = not flags or count >= _OFFSETS_MIN
    table = described + 4 * count if has_table else 0
    return _Part(high, start, count, flags, described, table, described + (8 if has_table else 4) * count)


def _end(body: bytes, part: _Part) -> int:
    if not part.containers:
        return part.first
    last = part.containers - 1
    return _container_end(body, part, last, part.start + _LONG.unpack_from(body, part.table + 4 * last)[0])


def _follow(body: bytes, part: _Part, starts: list[int]) -> int:
    """Add to ``starts`` where each container begins. Returns the end of the last."""
    position = part.first
    for place in range(part.containers):
        starts.append(position)
        position = _container_end(body, part, place, position)
    return position


def _container_end(body: bytes, part: _Part, place: int, start: int) -> int:
    if part.flags and body[part.flags + (place >> 3)] >> (place & 7) & 1:
        return int(start + 2 + 4 * _WORD.unpack_from(body, start)[0])
    members = _WORD.unpack_from(body, part.described + 4 * place + 2)[0] + 1
    return int(start + (2 * members if members <= _ARRAY_MAX else _BITS_BYTES))


def _words(data: npt.NDArray[np.uint8], positions: Longs) -> Longs:
    low, high = data[positions], data[positions + 1]
    return low.astype(np.int64) | high.astype(np.int64) << 8
