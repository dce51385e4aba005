"""Vector indexes over arrays: check parameters, build, save, load, search.

No files but the one it is told to write or read, no event loop, no metadata. faiss lies underneath;
what is added here is the reference's parameters and errors, filters that keep their recall, scores in
the reference's terms, and hot paths without Python work per row.
"""

from elanus.index.base import VectorIndex
from elanus.index.build import build, load
from elanus.index.hits import Hits, no_hits
from elanus.index.masks import RowMask
from elanus.index.raw import RawVectors
from elanus.index.search_params import SearchParams, Window, resolve_search
from elanus.index.spec import IndexSpec, IndexType, brute_force, resolve_index

__all__ = [
    "Hits",
    "IndexSpec",
    "IndexType",
    "RawVectors",
    "RowMask",
    "SearchParams",
    "VectorIndex",
    "Window",
    "brute_force",
    "build",
    "load",
    "no_hits",
    "resolve_index",
    "resolve_search",
]
