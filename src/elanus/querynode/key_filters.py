"""Which of many blocks may hold one of a few keys, decided for all of them in one pass.

Ranges of codes do not distinguish blocks with random keys. So a sealed block also has a Bloom filter: 12 bits
a key, in 64-bit words. A key's hash selects one word, and four bits in it; a block that lacks one of them
does not hold the key. One of about 90 other blocks is taken for one that does, and is visited for nothing.

The filters of many blocks are copied into one array, a *page*, so that numpy looks up keys of thousands of
blocks at once. A page whose blocks are mostly gone is given up, and the rest of them moves to another page.

A filter pays off for few keys. With a hundred keys most blocks are visited for nothing, and with many keys a
visit looks up only the block's own, while a filter is asked for each key of the deletes. See `worth_asking`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from elanus.querynode.keys import Codes

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

PAGE_WORDS = 1 << 21
"""16 MB of address space; the system provides the memory as it is written."""
PROBES_MAX = 1 << 17
"""At most this many keys times blocks are looked up, on the event loop: three milliseconds."""
KEYS_MAX = 32
"""Filters are asked for at most this many keys a block: beyond, they rule out too few blocks."""
_BITS_PER_KEY = 12
_AT_ONCE = 1 << 13
_MULTIPLY_1 = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_2 = np.uint64(0xBF58476D1CE4E5B9)
_ALIVE_SHARE_MIN = 4
"""A page is given up if less than one part in this many of what was written is of blocks that are here."""


def filter_of(codes: Codes) -> Words:
    """Return the filter of a block with these keys. For any thread."""
    words = np.zeros(max(1, math.ceil(len(codes) * _BITS_PER_KEY / 64)), dtype=np.uint64)
    for begin in range(0, len(codes), _AT_ONCE):  # the lock of the interpreter is held for one piece
        upper, bits = _hashed(codes[begin : begin + _AT_ONCE])
        np.bitwise_or.at(words, _word(upper, np.uint64(len(words))), bits)
    return words


def worth_asking(keys: Places) -> bool:
    """Whether asking the filters of some blocks pays. ``keys``: for how many keys each would be asked."""
    return int(keys.sum()) <= min(PROBES_MAX, KEYS_MAX * len(keys))


class FilterPages:
    """The filters of blocks, in pages. For one thread. A filter has a number: its page, and a place in it."""

    def __init__(self) -> None:
        self._pages: dict[int, Words] = {}
        self._alive: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._open = 0

    def add(self, words: Words) -> tuple[int, int]:
        """Keep a filter; return its page and the place of its first word there."""
        page = self._open
        if page not in self._pages or self._written[page] + len(words) > len(self._pages[page]):
            page = self._open = page + 1
            self._pages[page] = np.empty(max(PAGE_WORDS, len(words)), dtype=np.uint64)
            self._alive[page] = self._written[page] = 0
        first = self._written[page]
        self._pages[page][first : first + len(words)] = words
        self._written[page] += len(words)
        self._alive[page] += len(words)
        return page, first

    def remove(self, page: int, size: int) -> bool:
        """Forget filters of ``size`` words together; return whether the rest of its page should be moved."""
        self._alive[page] -= size
        if not self._alive[page]:
            del self._pages[page], self._alive[page], self._written[page]
            return False
        return self._alive[page] * _ALIVE_SHARE_MIN < self._written[page]

    def words(self, page: int, places: Places) -> Words:
        """Return a copy of the words at these places of a page."""
        return self._pages[page][places]

    def leave(self, page: int) -> None:
        """Add no more filters to this page."""
        if self._open == page:
            self._open += 1

    def may_hold(
        self, page: int, first: Places, size: Places, codes: Codes, begin: Places, end: Places
    ) -> npt.NDArray[np.bool_]:
        """Return for each of some filters of a page whether it may have one of its keys.

        ``first`` and ``size``: where the filters are. ``begin`` and ``end``: the keys of each, as places in
        ``codes``; at least one. shape (n,).
        """
        upper, bits = _hashed(codes)
        counts = end - begin
        starts = np.cumsum(counts) - counts
        filters = np.repeat(np.arange(len(first)), counts)
        keys = np.arange(len(filters)) + np.repeat(begin - starts, counts)
        wanted = bits[keys]
        places = first[filters] + _word(upper[keys], size[filters].view(np.uint64))
        found = (self._pages[page][places] & wanted) == wanted
        return np.asarray(np.logical_or.reduceat(found, starts))


def _hashed(codes: Codes) -> tuple[Words, Words]:
    """Return the upper half of each code's hash, and four bits of a word chosen by the lower half."""
    mixed = codes.view(np.uint64) * _MULTIPLY_1
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLY_2
    mixed ^= mixed >> np.uint64(29)
    bits = np.uint64(1) << (mixed & np.uint64(63))
    for shift in (6, 12, 18):
        bits |= np.uint64(1) << ((mixed >> np.uint64(shift)) & np.uint64(63))
    return mixed >> np.uint64(32), bits


def _word(upper: Words, words: Words | np.uint64) -> Places:
    """Return which of so many words a hash selects."""
    return ((upper * words) >> np.uint64(32)).view(np.int64)
