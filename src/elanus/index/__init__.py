"""Indexes over the values of a field: check parameters, build, save, load, search.

This package uses no files except the one it is asked to write or read, no event loop, and no metadata. It is
based on faiss, and adds the reference's parameters and errors, filters that keep their recall, scores in
the reference's terms, and hot paths without Python work per row.
"""

from elanus.index.base import ScalarIndex, SegmentIndex, VectorIndex
from elanus.index.bm25 import query_of, weighted
from elanus.index.build import build, load, save
from elanus.index.deferred import DeferredVectors
from elanus.index.files import DamagedIndexFile
from elanus.index.function_outputs import check_metric, with_metric
from elanus.index.hits import Hits, no_hits
from elanus.index.ignored import note_ignored
from elanus.index.interim import Codebook, Codes, InterimIndex, interim_index
from elanus.index.kmeans import nearest_centroids, train_centroids
from elanus.index.library import load_library
from elanus.index.lists import ElementIndex, MaxSimIndex
from elanus.index.masks import RowMask
from elanus.index.measuring import measure
from elanus.index.nullable import NullableIndex
from elanus.index.raw import RawVectors
from elanus.index.resolve import (
    brute_force,
    check_choice,
    check_mappable,
    completed,
    ignored_params,
    located,
    mapped_params,
    over_rows,
    resolve_field_index,
    resolve_index,
)
from elanus.index.scalar import JsonPath, check_field, json_path_of
from elanus.index.search_params import SearchParams, Window, resolve_search, true_params
from elanus.index.sparse import TermIndex
from elanus.index.spec import IndexSpec

__all__ = [
    "Codebook",
    "Codes",
    "DamagedIndexFile",
    "DeferredVectors",
    "ElementIndex",
    "Hits",
    "IndexSpec",
    "InterimIndex",
    "JsonPath",
    "MaxSimIndex",
    "NullableIndex",
    "RawVectors",
    "RowMask",
    "ScalarIndex",
    "SearchParams",
    "SegmentIndex",
    "TermIndex",
    "VectorIndex",
    "Window",
    "brute_force",
    "build",
    "check_choice",
    "check_field",
    "check_mappable",
    "check_metric",
    "completed",
    "ignored_params",
    "interim_index",
    "json_path_of",
    "load",
    "load_library",
    "located",
    "mapped_params",
    "measure",
    "nearest_centroids",
    "no_hits",
    "note_ignored",
    "over_rows",
    "query_of",
    "resolve_field_index",
    "resolve_index",
    "resolve_search",
    "save",
    "train_centroids",
    "true_params",
    "weighted",
    "with_metric",
]
