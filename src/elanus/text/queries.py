"""Texts to search with: they become vectors as the rows of a function's output do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elanus.core.functions import MINHASH, Function
from elanus.core.minhash import MinHash, minhash_of
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.sparse import Pairs
from elanus.text.analyzer import Analyzer
from elanus.text.fields import DEFAULT, FieldAnalyzers, analyzers_of
from elanus.text.signatures import signatures_of
from elanus.text.terms import query_terms


@dataclass(frozen=True, slots=True)
class QueryTexts:
    """``analyzer``: of the texts. ``minhash``: None for a BM25 function."""

    function: Function
    analyzer: Analyzer
    minhash: MinHash | None = None

    def vectors_of(self, texts: Sequence[str]) -> Pairs | npt.NDArray[np.uint8]:
        """Return query vectors: how often each term occurs, uint64 (nq, pairs), or signatures, uint8
        (nq, dim / 8)."""
        if self.minhash is None:
            return query_terms(self.analyzer, texts)
        return signatures_of(self.minhash, FieldAnalyzers({DEFAULT: self.analyzer}), texts)


def query_texts(schema: CollectionSchema, field: FieldSchema, name: str = "") -> QueryTexts | None:
    """Return what makes vectors of texts; None for a field of vectors that clients send.

    ``name``: of the analyzer, if the function's input has several; "" is the default one.
    """
    function = schema.function_of(field)
    if function is None:
        return None
    analyzer = analyzers_of(schema.field(function.input)).named(name)
    minhash = minhash_of(function.params, field.dim) if function.kind == MINHASH else None
    return QueryTexts(function, analyzer, minhash)
