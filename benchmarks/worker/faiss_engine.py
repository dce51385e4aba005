"""Raw faiss in this process: no server, no wire, no durability. The physical limit of the same index.

The rows of a collection wait in a flat index until HNSW is built from them. The finished index is written to
a file, so that several workers can search it at once, each with a copy of its own.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np

from benchmarks.worker.engine import Floats, Integers, Question, Vectors


class FaissEngine:
    """`Engine` over `faiss.IndexHNSWFlat`, with a bitmap selector as the filter."""

    def __init__(self, folder: Path, vectors: Vectors, threads: int) -> None:
        faiss.omp_set_num_threads(threads)
        self._folder = folder
        self._dimension = vectors.train.shape[1]
        self._buckets = vectors.buckets
        self._waiting: dict[str, faiss.IndexFlatL2] = {}
        self._graphs: dict[str, faiss.IndexHNSWFlat] = {}
        self._parameters: dict[Question, faiss.SearchParametersHNSW] = {}

    def create(self, collection: str) -> None:
        """Start an empty flat index."""
        self._waiting[collection] = faiss.IndexFlatL2(self._dimension)

    def insert(self, collection: str, ids: Integers, buckets: Integers, vectors: Floats) -> None:
        """Copy `vectors` behind the rows already there.

        Raises:
            ValueError: `ids` are not the next positions; faiss numbers rows by position alone.
        """
        flat = self._waiting[collection]
        if ids[0] != flat.ntotal or len(buckets) != len(ids):
            raise ValueError(f"faiss expects position {flat.ntotal} next, got key {ids[0]}")
        flat.add(np.ascontiguousarray(vectors))

    def build_index(self, collection: str, m: int, ef_construction: int) -> None:
        """Build the graph from the waiting rows and write it to a file."""
        flat = self._waiting.pop(collection)
        graph = faiss.IndexHNSWFlat(self._dimension, m)
        graph.hnsw.efConstruction = ef_construction
        graph.add(flat.reconstruct_n(0, flat.ntotal))
        self._graphs[collection] = graph

    def save(self, collection: str) -> None:
        """Write the finished graph, so that other workers can open it."""
        faiss.write_index(self._graphs[collection], str(self._path(collection)))

    def prepare(self, question: Question) -> None:
        """Read the graph if this worker has not got it, and build the selector's bitmap."""
        if question.collection not in self._graphs:
            self._graphs[question.collection] = faiss.read_index(str(self._path(question.collection)))
        parameters = faiss.SearchParametersHNSW(efSearch=question.ef)
        if question.bucket_below is not None:
            allowed = np.packbits(self._buckets < question.bucket_below, bitorder="little")
            selector = faiss.IDSelectorBitmap(allowed)
            parameters = faiss.SearchParametersHNSW(efSearch=question.ef, sel=selector)
        self._parameters[question] = parameters

    def as_query(self, vectors: Floats) -> object:
        """A contiguous array, which faiss reads in place."""
        return np.ascontiguousarray(vectors)

    def search(self, question: Question, query: object) -> list[list[int]]:
        """One faiss call; missing neighbors (-1) are left out."""
        graph = self._graphs[question.collection]
        _, keys = graph.search(query, question.top_k, params=self._parameters[question])
        return [row[row >= 0].tolist() for row in keys]

    def _path(self, collection: str) -> Path:
        return self._folder / f"{collection}.faiss"
