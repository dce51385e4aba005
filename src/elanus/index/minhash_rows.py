"""MinHash signatures: exact search under MHJACCARD.

A signature is a row of h elements, each the least hash of a set's members under one of h hash functions. The
probability that two sets have the same element is their Jaccard similarity, so the share of equal elements
estimates it (Broder, 1997). That share is the score: 1 for equal signatures, 0 if no element is equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elanus.core.metrics import Metric
from elanus.core.types import Matrix
from elanus.index.binary_rows import BinaryRows, Codes
from elanus.index.exact import Block
from elanus.index.hits import Scores
from elanus.index.spec import IndexSpec

ELEMENT_BITS_KEY = "mh_element_bit_width"
ELEMENT_BITS_DEFAULT = 32

Elements = npt.NDArray[np.unsignedinteger]


class MinHashRows(BinaryRows):
    """``codes``: uint8 (n, dim / 8). ``element_bits``: 8, 16, 32 or 64, which divide the dimension."""

    def __init__(self, codes: Codes, element_bits: int) -> None:
        super().__init__(codes, Metric.MHJACCARD)
        self._element_bits = element_bits
        self._elements = elements_of(codes, element_bits)

    def _matrix(self, queries: Codes, block: Block) -> Scores:
        """Score every query against every row of the block. → float32 (nq, rows)."""
        rows = self._elements[block]
        scores = np.empty((len(queries), len(rows)), dtype=np.float32)
        for i, query in enumerate(elements_of(queries, self._element_bits)):
            scores[i] = np.count_nonzero(rows == query, axis=1)
        scores /= np.float32(self._elements.shape[1])
        return scores


def elements_of(codes: Codes, element_bits: int) -> Elements:
    """Return signatures as their elements. (n, dim / 8) → (n, dim / element_bits), a view where it can be."""
    elements: Elements = np.ascontiguousarray(codes).view(np.dtype(f"<u{element_bits // 8}"))
    return elements


def minhash_rows(spec: IndexSpec, vectors: Matrix) -> MinHashRows:
    """Return signatures, uint8 (n, dim / 8), as rows without an index. ``spec`` has the width of elements."""
    bits = int(spec.params.get(ELEMENT_BITS_KEY, ELEMENT_BITS_DEFAULT))
    return MinHashRows(np.ascontiguousarray(vectors, dtype=np.uint8), bits)
