"""The kinds of index, one entry each.

To add a kind, write a module with a class and its `IndexKind`, and add a line here. Parameters, the field
types a kind supports, building, loading and AUTOINDEX all follow from the entry; nothing else lists kinds.

The order here is the order of names in error messages. Of several exact or automatic kinds for a type, the
first is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.metrics import Metric
from elanus.core.types import DataType
from elanus.index.binary_ivf import BIN_IVF_FLAT
from elanus.index.diskann import DISKANN
from elanus.index.hnsw import HNSW
from elanus.index.hnsw_codes import HNSW_PQ, HNSW_PRQ, HNSW_SQ
from elanus.index.ignored import FOREIGN_SEARCH_PARAMS
from elanus.index.ivf import IVF_FLAT, IVF_SQ8
from elanus.index.ivf_codes import IVF_PQ, IVF_RABITQ, IVF_RABITQ_FASTSCAN, SCANN
from elanus.index.minhash_lsh import MINHASH_LSH
from elanus.index.raw import BIN_FLAT, FLAT
from elanus.index.recipes import SEARCH_NAMES
from elanus.index.scalar.kinds import SCALAR_KINDS
from elanus.index.search_params import SHARED_PARAMS
from elanus.index.sparse import SPARSE_INVERTED_INDEX, SPARSE_WAND
from elanus.index.spec import IndexKind

KINDS: Mapping[str, IndexKind] = {
    kind.name: kind
    for kind in (
        FLAT,
        IVF_FLAT,
        IVF_SQ8,
        IVF_PQ,
        IVF_RABITQ,
        IVF_RABITQ_FASTSCAN,
        SCANN,
        HNSW,
        HNSW_SQ,
        HNSW_PQ,
        HNSW_PRQ,
        DISKANN,
        BIN_FLAT,
        BIN_IVF_FLAT,
        MINHASH_LSH,
        SPARSE_INVERTED_INDEX,
        SPARSE_WAND,
        *SCALAR_KINDS,
    )
}


def kinds_on(data_type: DataType) -> tuple[IndexKind, ...]:
    """Return the kinds that index fields of a type."""
    return tuple(kind for kind in KINDS.values() if data_type in kind.on)


def automatic_kind(data_type: DataType, metric: Metric | None = None) -> IndexKind | None:
    """Return the kind that AUTOINDEX selects for fields of a type, and for the metric if one is given.

    None if there is none.
    """
    kinds = (kind for kind in kinds_on(data_type) if kind.is_automatic)
    return next((kind for kind in kinds if metric is None or metric in (kind.metrics or (metric,))), None)


def exact_kind(data_type: DataType) -> IndexKind:
    """Return the kind that serves rows of a vector type without an index."""
    return next(kind for kind in KINDS.values() if kind.over_rows is not None and data_type in kind.on)


def search_param_names() -> frozenset[str]:
    """Return every search parameter that some kind reads, and those that the reference's other kinds read."""
    own = (kind.search_params for kind in KINDS.values())
    return FOREIGN_SEARCH_PARAMS.union(SHARED_PARAMS, SEARCH_NAMES, *own)
