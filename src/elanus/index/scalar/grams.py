"""Grams: every run of n characters of a text, and which texts have each of them.

Nothing here works text by text. All texts are one array of characters. The grams of n + 1 characters are
those of n with one more, so each gram gets a small number: that of its beginning times the size of the
alphabet, plus its last character, renumbered without gaps. Only distinct grams are hashed, and a counting
sort brings the texts of each gram together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.index.library import faiss

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_TABLE_MAX = 1 << 24
"""Numbers below this are renumbered by a table, larger ones by hashing."""
_TOGETHER = 1 << 15

Hashes = npt.NDArray[np.uint32]
Characters = npt.NDArray[np.uint32]
"""Code points."""


@dataclass(frozen=True, slots=True)
class GramTexts:
    """The texts of each gram.

    ``hashes``: of the grams, ascending and distinct; ``starts``: int64 (hashes + 1,), where the texts of each
    begin in ``texts``: their numbers, ascending for each gram.
    """

    hashes: Hashes
    starts: npt.NDArray[np.int64]
    texts: npt.NDArray[np.uint32]


def hashes_of(fragment: str, length: int) -> Hashes:
    """Return the hash of every run of ``length`` characters of a text, in order; none if it is shorter."""
    characters = _characters(fragment.encode())
    if len(characters) < length:
        return np.empty(0, np.uint32)
    return _hashed(np.lib.stride_tricks.sliding_window_view(characters, length))


def gram_texts(texts: pa.Array, lengths: range) -> GramTexts:
    """Return which of the texts have each gram of these lengths. ``texts``: large strings without nulls."""
    counts = pc.utf8_length(texts).to_numpy()
    occurrences = sum(int(np.maximum(counts - length + 1, 0).sum()) for length in lengths)
    grams, owners = np.empty(occurrences, np.int64), np.empty(occurrences, np.uint32)
    hashes = [np.empty(0, np.uint32)]
    filled = known = 0
    runs = _Runs(_characters(_bytes(texts)), counts)
    for length in range(1, lengths.stop if occurrences else 1):
        runs.lengthen()
        if length in lengths:
            hashes.append(runs.hashes())
            filled += runs.write(grams[filled:], owners[filled:], known)
            known += runs.distinct
    del runs
    distinct, ranks = np.unique(np.concatenate(hashes), return_inverse=True)
    for part in _parts(occurrences):
        grams[part] = ranks[grams[part]]
    starts, order = faiss.bucket_sort(grams, nbucket=len(distinct))
    del grams
    keys = owners[order]
    del order, owners
    for shared in np.flatnonzero(np.bincount(ranks) > 1).tolist():  # one hash of several grams
        keys[starts[shared] : starts[shared + 1]].sort()
    return _without_repeats(distinct, starts, keys)


def _without_repeats(
    hashes: Hashes, starts: npt.NDArray[np.int64], keys: npt.NDArray[np.uint32]
) -> GramTexts:
    """Leave out what a text has twice."""
    is_repeated = np.zeros(len(keys), np.bool_)
    is_repeated[1:] = keys[1:] == keys[:-1]
    is_repeated[starts[:-1]] = False
    repeats = np.searchsorted(np.flatnonzero(is_repeated), starts)
    return GramTexts(hashes, starts - repeats, keys[~is_repeated])


class _Runs:
    """The runs of so many characters that begin at each character of many texts, as numbers of grams.

    ``numbers``: the gram of each run, below ``distinct``. A run that would go on into the next text has a
    number without meaning; ``room`` says how many characters of its text there are from each on.
    """

    def __init__(self, characters: Characters, counts: npt.NDArray[np.integer]) -> None:
        self._characters = characters
        self._owners = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
        ends = np.cumsum(counts, dtype=np.int64)
        self._room = np.empty(len(characters), np.int32)
        for part in _parts(len(characters)):
            self._room[part] = ends[self._owners[part]] - np.arange(part.start, part.stop)
        self._length = 0
        self._numbers = np.zeros(len(characters), np.int32)
        self._letters, self._alphabet = self._numbers, int(characters.max(initial=0)) + 1
        self.distinct = 1

    def lengthen(self) -> None:
        """Make each run longer by one character."""
        self._length += 1
        limit = self.distinct * self._alphabet
        if limit <= _TABLE_MAX:
            self._number_by_table(limit)
        else:
            self._number_by_hashing()
        if self._length == 1:
            self._letters, self._alphabet = self._numbers.copy(), self.distinct

    def hashes(self) -> Hashes:
        """Return the hash of each gram."""
        places = np.zeros(self.distinct, np.int64)
        for part in self._parts():
            inside = self._inside(part)
            places[self._numbers[part][inside]] = np.flatnonzero(inside) + part.start
        return _hashed(self._characters[places[:, None] + np.arange(self._length)])

    def write(self, grams: npt.NDArray[np.int64], owners: npt.NDArray[np.uint32], first: int) -> int:
        """Write the gram of each run, plus ``first``, and its text; return how many there are."""
        filled = 0
        for part in self._parts():
            inside = self._inside(part)
            numbers = self._numbers[part][inside]
            written = slice(filled, filled + len(numbers))
            np.add(numbers, first, out=grams[written])
            owners[written] = self._owners[part][inside]
            filled += len(numbers)
        return filled

    def _number_by_table(self, limit: int) -> None:
        is_used = np.zeros(limit, np.bool_)
        for part in self._parts():
            is_used[self._longer(part)[self._inside(part)]] = True
        self.distinct, others = int(is_used.sum()), np.cumsum(is_used, dtype=np.int32)
        np.maximum(others - 1, 0, out=others)
        for part in self._parts():
            self._numbers[part] = others[self._longer(part)]

    def _number_by_hashing(self) -> None:
        every = slice(0, max(0, len(self._characters) - self._length + 1))
        inside = self._inside(every)
        encoded = pa.array(self._longer(every)[inside]).dictionary_encode()
        self._numbers[every] = 0
        self._numbers[every][inside] = encoded.indices.to_numpy()
        self.distinct = len(encoded.dictionary)

    def _parts(self) -> Iterator[slice]:
        return _parts(len(self._characters) - self._length + 1)

    def _inside(self, part: slice) -> npt.NDArray[np.bool_]:
        return self._room[part] >= self._length

    def _longer(self, part: slice) -> npt.NDArray[np.int64]:
        """Return a number for each run of a part and the character after it."""
        if self._length == 1:
            return self._characters[part].astype(np.int64)
        longer = self._numbers[part] * np.int64(self._alphabet)
        longer += self._letters[part.start + self._length - 1 : part.stop + self._length - 1]
        return longer


def _parts(count: int) -> Iterator[slice]:
    """Yield slices of so many numbers that fit into a processor's cache."""
    for first in range(0, count, _TOGETHER):
        yield slice(first, min(first + _TOGETHER, count))


def _hashed(runs: Characters) -> Hashes:
    """Return the hashes of runs of characters, (n, length)."""
    hashes = np.full(len(runs), np.uint64(runs.shape[1]), np.uint64)
    for offset in range(runs.shape[1]):
        hashes = (hashes ^ runs[:, offset]) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
    return (hashes * _MIX >> np.uint64(32)).astype(np.uint32)


def _characters(utf8: bytes) -> Characters:
    return np.frombuffer(utf8.decode().encode("utf-32-le"), np.uint32)


def _bytes(texts: pa.Array) -> bytes:
    """Return the UTF-8 bytes of all texts, one after another."""
    _, offset_buffer, data = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return b"" if data is None else bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
