"""Text filters: which texts of a column contain some tokens, or a phrase.

A column's tokens are kept for as long as the column lives: they are made by the first filter that needs them.
They are kept by token: for each, the rows that have it and its positions there, 8 bytes for each occurrence.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.text.analyzer import Analyzer

Mask = npt.NDArray[np.bool_]
_ROW_SPAN = np.int64(1) << 33
"""More than any position and slop in a row together, which keeps the positions of different rows apart."""
_SLOP_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class TokenColumn:
    """The tokens of a column. Those of word i are ``starts[i]:starts[i + 1]`` of ``rows`` and ``positions``.

    ``rows``: ascending for each word, and the positions ascending for each row. Both int32.
    """

    count: int
    vocabulary: pa.Array
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return int(self.vocabulary.nbytes) + self.starts.nbytes + self.rows.nbytes + self.positions.nbytes

    def occurrences(self, words: pa.Array) -> list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """Return the rows and positions of each word."""
        found = []
        for place in pc.index_in(words, self.vocabulary).to_pylist():
            begin, end = (0, 0) if place is None else (self.starts[place], self.starts[place + 1])
            found.append((self.rows[begin:end], self.positions[begin:end]))
        return found


_kept: dict[tuple[int, int], tuple[TokenColumn, Analyzer]] = {}
"""By the identities of a column and of its analyzer, which live at least as long as the entry."""


def tokens_of_column(column: pa.Array, analyzer: Analyzer) -> TokenColumn:
    """Return the tokens of a column of strings. Two threads may both make them: they are equal."""
    key = (id(column), id(analyzer))
    known = _kept.get(key)
    if known is None:
        known = (_analyzed(column, analyzer), analyzer)
        weakref.finalize(column, _kept.pop, key, None).atexit = False
        _kept[key] = known
    return known[0]


def kept_bytes(column: pa.Array) -> int:
    """Bytes of what text filters keep for a column."""
    return sum(tokens.nbytes for (kept, _), (tokens, _) in tuple(_kept.items()) if kept == id(column))


def _analyzed(column: pa.Array, analyzer: Analyzer) -> TokenColumn:
    tokens = analyzer.tokens_of(column)
    order = np.argsort(tokens.codes, kind="stable")
    counts = np.bincount(tokens.codes, minlength=len(tokens.vocabulary))
    return TokenColumn(
        len(column),
        tokens.vocabulary,
        np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
        tokens.rows[order],
        tokens.positions[order],
    )


def matching_rows(tokens: TokenColumn, words: pa.Array, minimum: int) -> Mask:
    """Return which texts contain at least ``minimum`` of the words, which are distinct. (rows,)."""
    held = np.zeros(tokens.count, dtype=np.int32)
    for rows, _ in tokens.occurrences(words):
        held[np.unique(rows)] += 1
    return held >= max(1, minimum)


def phrase_rows(tokens: TokenColumn, words: pa.Array, offsets: npt.NDArray[np.int64], slop: int) -> Mask:
    """Return which texts contain the phrase. ``offsets``: the positions of its words in the phrase.

    The words may be moved by ``slop`` positions in all, in either direction, as in tantivy: if each
    occurrence is moved back by its word's offset, a match is one occurrence of each word within ``slop``
    positions.
    """
    mask = np.zeros(tokens.count, dtype=np.bool_)
    if not len(words):
        return mask
    slop = min(slop, _SLOP_MAX)
    places = _moved(tokens, words, offsets)
    if not all(len(one) for one in places):
        return mask
    firsts = np.unique(np.concatenate(places if slop else places[:1]))
    for one in places:
        after = np.searchsorted(one, firsts)
        near = after < len(one)
        near[near] = one[after[near]] <= firsts[near] + slop
        firsts = firsts[near]
    mask[firsts // _ROW_SPAN] = True
    return mask


def least_slop(tokens: TokenColumn, words: pa.Array, offsets: npt.NDArray[np.int64]) -> int | None:
    """Return the smallest slop with which the only text of ``tokens`` has the phrase; None: with none."""
    places = _moved(tokens, words, offsets)
    if not places or not all(len(one) for one in places):
        return None
    firsts = np.unique(np.concatenate(places))
    widest = np.zeros(len(firsts), dtype=np.int64)
    for one in places:
        after = np.minimum(np.searchsorted(one, firsts), len(one) - 1)
        widest = np.maximum(widest, np.where(one[after] >= firsts, one[after] - firsts, _ROW_SPAN))
    return int(widest.min())


def _moved(
    tokens: TokenColumn, words: pa.Array, offsets: npt.NDArray[np.int64]
) -> list[npt.NDArray[np.int64]]:
    """Return where each word of a phrase occurs, moved back by its offset. Ascending; rows are far apart."""
    longest = int(offsets.max(initial=0))
    return [
        np.sort(rows.astype(np.int64) * _ROW_SPAN + positions + (longest - offset))
        for (rows, positions), offset in zip(tokens.occurrences(words), offsets.tolist(), strict=True)
    ]
