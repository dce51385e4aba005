"""The requests of the demo, with `pymilvus` and nothing else.

Each method is one task of an application, in the terms of the client's documentation, so
that it can be copied from here. Vectors are compared by Euclidean distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pymilvus import DataType, MilvusClient

COLLECTION = "digits"
INSERT_BATCH_ROWS = 1000
SEARCH_BATCH_QUERIES = 100
EF = 64

Vectors = npt.NDArray[np.float32]
Hits = list[list[dict[str, Any]]]


class Steps:
    """The requests of one client to the server."""

    def __init__(self, uri: str) -> None:
        self._client = MilvusClient(uri)

    def close(self) -> None:
        self._client.close()

    def create_collection(self, dimension: int) -> None:
        """Create an empty collection; drop one that an earlier run left."""
        if self._client.has_collection(COLLECTION):
            self._client.drop_collection(COLLECTION)
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("digit", DataType.INT8)
        schema.add_field("image", DataType.FLOAT_VECTOR, dim=dimension)
        self._client.create_collection(COLLECTION, schema=schema)

    def insert(self, images: Vectors, labels: npt.NDArray[np.int64], done: Callable[[int], None]) -> None:
        """Insert in batches; a row's number is its primary key. ``done`` receives the row count so far."""
        for start in range(0, len(images), INSERT_BATCH_ROWS):
            stop = min(start + INSERT_BATCH_ROWS, len(images))
            rows = [{"id": i, "digit": int(labels[i]), "image": images[i]} for i in range(start, stop)]
            self._client.insert(COLLECTION, rows)
            done(stop)

    def flush(self) -> None:
        """Seal the growing segments and wait until Spark has written them as Parquet."""
        self._client.flush(COLLECTION)

    def create_index(self) -> None:
        """Build the HNSW index, on Spark, and wait for it."""
        params = self._client.prepare_index_params()
        params.add_index(
            "image", index_type="HNSW", metric_type="L2", params={"M": 16, "efConstruction": 200}
        )
        self._client.create_index(COLLECTION, params)

    def load(self) -> None:
        """Load the collection into memory and wait until it can be searched."""
        self._client.load_collection(COLLECTION)

    def search(self, queries: Vectors, limit: int, where: str = "", **options: Any) -> Hits:
        """Find the nearest rows of each query, in batches: per query a list of hits, nearest first."""
        hits: Hits = []
        for start in range(0, len(queries), SEARCH_BATCH_QUERIES):
            batch = queries[start : start + SEARCH_BATCH_QUERIES]
            hits += self._client.search(
                COLLECTION,
                list(batch),
                filter=where,
                limit=limit,
                output_fields=["digit"],
                search_params={"metric_type": "L2", "params": {"ef": EF}},
                **options,
            )
        return hits

    def count(self) -> int:
        """Return the current number of rows."""
        answer = self._client.query(COLLECTION, output_fields=["count(*)"], consistency_level="Strong")
        return int(answer[0]["count(*)"])

    def images(self, ids: Sequence[int]) -> dict[int, Vectors]:
        """Return the stored vectors of some primary keys."""
        rows = self._client.query(COLLECTION, filter=f"id in {list(ids)}", output_fields=["id", "image"])
        return {row["id"]: np.asarray(row["image"], dtype=np.float32) for row in rows}

    def delete(self, ids: Sequence[int]) -> None:
        self._client.delete(COLLECTION, ids=list(ids))
