"""Terms: the tokens of texts as sparse vectors, which is the form that full-text search stores and compares.

A term is the hash of a token, the reference's: crc32 of its first 100 bytes. A row's vector has one pair for
each distinct term: the term, and how often it occurs. Two tokens with one hash count as one term; of a
million different tokens about one in four thousand shares its hash with another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.hashing import hash_strings
from elanus.core.schema import FieldSchema
from elanus.core.sparse import NO_INDEX, Pairs, RowIds, SparseRows, paired, starts_of
from elanus.text.analyzer import CHUNK_TEXTS, Analyzer, Tokens
from elanus.text.fields import analyzers_of

_NO_ROWS = pa.array([], pa.binary())


def term_ids(vocabulary: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the terms of tokens. (n,)."""
    return hash_strings(vocabulary) % np.uint32(NO_INDEX)


def term_rows(tokens: Tokens, rows: int) -> SparseRows:
    """Return the vectors of analyzed texts: how often each term occurs in each of ``rows`` texts."""
    terms = term_ids(tokens.vocabulary).astype(np.uint64)
    keys = tokens.rows.astype(np.uint64) << np.uint64(32) | terms[tokens.codes]
    distinct, counts = np.unique(keys, return_counts=True)
    lengths = np.bincount((distinct >> np.uint64(32)).astype(np.int64), minlength=rows)
    indices = (distinct & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return SparseRows(starts_of(lengths), paired(indices, counts.astype(np.float32)))


def query_terms(analyzer: Analyzer, texts: Sequence[str]) -> Pairs:
    """Return queries as a matrix (`elanus.core.sparse.padded`) of terms and how often each occurs."""
    rows = term_rows(analyzer.tokens_of(texts), len(texts))
    matrix = np.full((len(texts), max(1, int(rows.lengths.max(initial=0)))), NO_INDEX, dtype=rows.pairs.dtype)
    matrix[np.arange(matrix.shape[1]) < rows.lengths[:, None]] = rows.pairs
    return matrix


class TermRows(SparseRows):
    """The vectors of a column of texts, made when they are first wanted.

    Inserts are not slowed by analysis: the first full-text search analyzes what has arrived. ``names``: the
    names of the rows' analyzers, if the field has several. ``known``: the vectors of the first rows, if they
    have been made already. Two threads may both make the vectors.
    """

    __slots__ = ("_analyzers", "_known", "_made", "_names", "_texts")

    def __init__(
        self,
        field: FieldSchema,
        texts: pa.Array,
        names: pa.Array | None = None,
        known: SparseRows | None = None,
    ) -> None:
        self._analyzers = analyzers_of(field)
        self._texts = texts
        self._names = names
        self._known = known
        self._made: SparseRows | None = None

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def made(self) -> SparseRows | None:
        """The vectors, if they have been made."""
        return self._made

    @property
    def rows(self) -> SparseRows:
        """The vectors. The first call analyzes the texts."""
        made = self._made
        if made is None:
            known = self._known
            parts = [] if known is None else [known]
            first = 0 if known is None else len(known)
            for start in range(first, len(self._texts), CHUNK_TEXTS):
                texts = self._texts.slice(start, CHUNK_TEXTS).to_pylist()
                names = None if self._names is None else self._names.slice(start, CHUNK_TEXTS).to_pylist()
                parts.append(term_rows(self._analyzers.tokens_of(texts, names), len(texts)))
            self._made = made = SparseRows.joined(parts) if parts else SparseRows.from_column(_NO_ROWS)
            self._known = None
        return made

    @property
    def pairs(self) -> Pairs:  # type: ignore[override]
        return self.rows.pairs

    @property
    def starts(self) -> RowIds:  # type: ignore[override]
        return self.rows.starts

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors that have been made."""
        made = self._made or self._known
        return 0 if made is None else made.nbytes
