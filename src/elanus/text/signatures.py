"""MinHash signatures of texts: fixed-length vectors that are similar where texts are (Broder, 1997).

A text is the set of its shingles, runs of `MinHash.shingle_size` tokens. Each shingle is hashed once, to 32
bits. Element i of the signature is the least value of hash function i over all shingles, where the functions
are ``(a_i · x + b_i) mod 2^64 >> 32`` with a_i odd (Dietzfelbinger, 1996). The share of equal elements of two
signatures estimates the Jaccard similarity of the two sets.

A text with fewer tokens than a shingle has is one shingle. All bits of the signature of a text without tokens
are set, so it equals only that of another such text. Signatures are stored in segments: the same parameters
and text always give the same signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from elanus.core.functions import Function
from elanus.core.minhash import MinHash, minhash_of
from elanus.core.schema import FieldSchema
from elanus.text.fields import FieldAnalyzers, analyzers_of

CHUNK_TEXTS = 1024
_EMPTY = np.uint32(0xFFFFFFFF)

Codes = npt.NDArray[np.uint8]


def signatures_of(
    minhash: MinHash,
    analyzers: FieldAnalyzers,
    texts: Sequence[str | None],
    names: Sequence[str | None] | None = None,
) -> Codes:
    """Return the signatures of texts, little-endian elements of 4 bytes. uint8 (n, 4 · hashes).

    ``names``: the names of the texts' analyzers, if the field has several.
    """
    factors, offsets = _functions(minhash)
    digest = _sha1 if minhash.sha1 else _xxhash64
    made = np.full((len(texts), minhash.hashes), _EMPTY, dtype="<u4")
    for row, shingles in enumerate(_shingles(minhash, analyzers, texts, names)):
        if shingles:
            hashes = np.array([digest(s) & 0xFFFFFFFF for s in shingles], dtype=np.uint64)
            values = (hashes[:, None] * factors + offsets) >> np.uint64(32)
            made[row] = values.min(axis=0)
    return made.view(np.uint8)


def _functions(minhash: MinHash) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return a and b of each hash function. (hashes,), (hashes,)."""
    drawn = np.random.PCG64(minhash.seed & (2**64 - 1)).random_raw(2 * minhash.hashes)
    return drawn[: minhash.hashes] | np.uint64(1), drawn[minhash.hashes :]


def _shingles(
    minhash: MinHash,
    analyzers: FieldAnalyzers,
    texts: Sequence[str | None],
    names: Sequence[str | None] | None,
) -> list[set[str]]:
    size = minhash.shingle_size
    if minhash.by_characters:
        return [_runs(text or "", size, "".join) for text in texts]
    tokens = analyzers.tokens_of(texts, names)
    vocabulary = tokens.vocabulary.to_pylist()
    words = [vocabulary[code] for code in tokens.codes.tolist()]
    ends = np.searchsorted(tokens.rows, np.arange(len(texts)), side="right").tolist()
    return [_runs(words[a:b], size, " ".join) for a, b in zip([0, *ends], ends, strict=False)]


def _runs(tokens: Sequence[str], size: int, joined: Callable[[Sequence[str]], str]) -> set[str]:
    if not tokens:
        return set()
    return {joined(tokens[first : first + size]) for first in range(max(1, len(tokens) - size + 1))}


def _xxhash64(shingle: str) -> int:
    return xxhash.xxh64_intdigest(shingle.encode())


def _sha1(shingle: str) -> int:
    return int.from_bytes(hashlib.sha1(shingle.encode(), usedforsecurity=False).digest()[:8], "little")


class SignatureRows:
    """The signatures of a column of texts, made when they are first wanted.

    ``known``: those of the first rows, if they have been made already. Two threads may both make them.
    """

    __slots__ = ("_analyzers", "_known", "_made", "_minhash", "_names", "_output", "_texts")

    def __init__(
        self,
        field: FieldSchema,
        output: FieldSchema,
        function: Function,
        texts: pa.Array,
        names: pa.Array | None = None,
        known: Codes | None = None,
    ) -> None:
        self._analyzers = analyzers_of(field)
        self._minhash = minhash_of(function.params, output.dim)
        self._output = output
        self._texts = texts
        self._names = names
        self._known = known
        self._made: Codes | None = None

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def made(self) -> Codes | None:
        """The signatures, if they have been made."""
        return self._made

    @property
    def rows(self) -> Codes:
        """The signatures, uint8 (n, dim / 8). The first call analyzes the texts."""
        made = self._made
        if made is None:
            known = self._known
            parts = [np.empty((0, self._output.dim // 8), np.uint8)] if known is None else [known]
            for start in range(len(parts[0]), len(self._texts), CHUNK_TEXTS):
                texts = self._texts.slice(start, CHUNK_TEXTS).to_pylist()
                names = None if self._names is None else self._names.slice(start, CHUNK_TEXTS).to_pylist()
                parts.append(signatures_of(self._minhash, self._analyzers, texts, names))
            self._made = made = np.concatenate(parts)
            self._known = None
        return made

    def to_column(self) -> pa.Array:
        """Return the signatures as the output field's Arrow type."""
        return self._output.vector.to_column(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the signatures that have been made."""
        made = self._known if self._made is None else self._made
        return 0 if made is None else made.nbytes
