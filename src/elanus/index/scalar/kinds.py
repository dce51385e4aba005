"""The kinds of scalar indexes, one entry each; `elanus.index.kinds` has them next to those of vectors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from elanus.core.types import KINDS as DATA_TYPES
from elanus.core.types import DataType, Family
from elanus.index.base import ScalarIndex
from elanus.index.files import IndexFileContent
from elanus.index.scalar.bitmap import KEYS_MAX, Bitmap
from elanus.index.scalar.documents import Documents
from elanus.index.scalar.ngram import Ngrams
from elanus.index.scalar.params import JSON_CAST_TYPE, WHOLE_DOCUMENT, CardinalityParam, GramParam
from elanus.index.scalar.postings import Postings, grouped
from elanus.index.scalar.rectangles import Rectangles
from elanus.index.spec import IndexKind, IndexSpec, Progress


def _of(*families: Family) -> frozenset[DataType]:
    return frozenset(kind.data_type for kind in DATA_TYPES.values() if kind.family in families)


_SCALARS = _of(Family.BOOL, Family.INTEGER, Family.FLOATING, Family.TEXT, Family.LIST, Family.JSON)
_FEW_VALUES = _of(Family.BOOL, Family.INTEGER, Family.TEXT, Family.LIST, Family.JSON)


def _postings(spec: IndexSpec, column: pa.Array, progress: Progress) -> ScalarIndex:
    structure = Documents if _is_of_documents(spec) else Postings
    return structure(spec, len(column), grouped(column))


def _bitmap(spec: IndexSpec, column: pa.Array, progress: Progress) -> ScalarIndex:
    """Build a bitmap, or postings if there are too many distinct values."""
    keys_max = min(KEYS_MAX, int(spec.params.get(CARDINALITY, KEYS_MAX)))
    if not _is_of_documents(spec):
        groups = grouped(column, once_each=True)
        if len(groups.keys) <= keys_max:
            return Bitmap.of(spec, len(column), groups)
        del groups
    return _postings(spec, column, progress)


def _ngrams(spec: IndexSpec, column: pa.Array, progress: Progress) -> ScalarIndex:
    return Ngrams.of(spec, column)


def _load(spec: IndexSpec, content: IndexFileContent) -> ScalarIndex:
    """Load the structure that the file has."""
    structure: Any = Documents if _is_of_documents(spec) else Postings
    if "bits" in content.arrays:
        structure = Bitmap
    loaded: ScalarIndex = structure.from_file(spec, content)
    return loaded


def _is_of_documents(spec: IndexSpec) -> bool:
    return spec.params.get(JSON_CAST_TYPE) == WHOLE_DOCUMENT


CARDINALITY = "bitmap_cardinality_limit"

HYBRID = IndexKind(
    "HYBRID",
    _SCALARS,
    _bitmap,
    _load,
    build_params={CARDINALITY: CardinalityParam(KEYS_MAX)},
    is_automatic=True,
)
INVERTED = IndexKind("INVERTED", _SCALARS, _postings, _load)
STL_SORT = IndexKind(
    "STL_SORT", _of(Family.INTEGER, Family.FLOATING, Family.TEXT, Family.TIME), _postings, _load
)
TRIE = IndexKind("Trie", _of(Family.TEXT), _postings, _load)
BITMAP = IndexKind("BITMAP", _FEW_VALUES, _bitmap, _load)
NGRAM = IndexKind(
    "NGRAM",
    _of(Family.TEXT, Family.JSON),
    _ngrams,
    Ngrams.from_file,
    build_params={"min_gram": GramParam("min_gram"), "max_gram": GramParam("max_gram")},
)

RTREE = IndexKind("RTREE", _of(Family.GEOMETRY), Rectangles.of, Rectangles.from_file)

SCALAR_KINDS = (INVERTED, STL_SORT, TRIE, BITMAP, NGRAM, RTREE, HYBRID)
