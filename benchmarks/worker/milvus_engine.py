"""A client of a Milvus server: the ORM of pymilvus, which 2.3.6 and 3.0.2 have alike.

The ORM takes columns, so rows go in as arrays: the fastest insert that either release offers.
"""

from __future__ import annotations

import socket
import time
import warnings
from typing import Any

import grpc
import numpy as np
from pymilvus import (
    Collection,
    CollectionSchema,
    DataType,
    FieldSchema,
    MilvusException,
    connections,
    utility,
)
from pymilvus.client.types import LoadState

from benchmarks.worker.engine import Floats, Integers, Question

warnings.filterwarnings("ignore", category=FutureWarning, message=".*PyMilvus 3.1.*")

VECTOR = "vector"
BUCKET = "bucket"
KEY = "id"
#: Milvus's own default; a search at rest then waits for nobody, in any of the systems.
DEFAULT_CONSISTENCY = "Bounded"
SETTLE_POLL_S = 0.2
CONNECT_POLL_S = 0.02
STATE_TIMEOUT_S = 2
#: `SegmentState` on the wire.
SEGMENT_SEALED = 3


class MilvusEngine:
    """`Engine` over a Milvus gRPC address, and the calls that only a server knows."""

    def __init__(self, host: str, port: int, dimension: int) -> None:
        self._host = host
        self._port = port
        self._dimension = dimension
        self._collections: dict[str, Any] = {}

    def connect(self, timeout_s: float) -> None:
        """Connect, trying again until `timeout_s` is over.

        Raises:
            MilvusException: the server still does not answer.
        """
        deadline = time.monotonic() + timeout_s
        while not self._is_listening() and time.monotonic() < deadline:
            time.sleep(CONNECT_POLL_S)  # gRPC itself would wait a second and more between two attempts
        while True:
            try:
                connections.connect(host=self._host, port=str(self._port), timeout=2)
            except MilvusException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(CONNECT_POLL_S)
            else:
                return

    def _is_listening(self) -> bool:
        try:
            socket.create_connection((self._host, self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def create(self, collection: str) -> None:
        """Make an empty collection of one shard."""
        fields = [
            FieldSchema(KEY, DataType.INT64, is_primary=True),
            FieldSchema(BUCKET, DataType.INT64),
            FieldSchema(VECTOR, DataType.FLOAT_VECTOR, dim=self._dimension),
        ]
        self._collections[collection] = Collection(
            collection, CollectionSchema(fields), num_shards=1, consistency_level=DEFAULT_CONSISTENCY
        )

    def drop(self, collection: str) -> None:
        """Drop the collection."""
        self._open(collection).drop()
        del self._collections[collection]

    def insert(self, collection: str, ids: Integers, buckets: Integers, vectors: Floats) -> None:
        """Insert one batch as columns; vectors ``(rows, dimension)`` float32."""
        self._open(collection).insert([ids.tolist(), buckets.tolist(), np.asarray(vectors)])

    def delete(self, collection: str, key: int) -> None:
        """Delete one row by primary key."""
        self._open(collection).delete(f"{KEY} in [{key}]")

    def flush(self, collection: str) -> None:
        """Flush; returns when every segment of the collection is persisted."""
        self._open(collection).flush()

    def build_index(self, collection: str, m: int, ef_construction: int) -> None:
        """Create the HNSW index; returns when every flushed segment has it."""
        parameters = {"M": m, "efConstruction": ef_construction}
        self._open(collection).create_index(
            VECTOR, {"index_type": "HNSW", "metric_type": "L2", "params": parameters}
        )

    def load(self, collection: str) -> None:
        """Load the collection; returns when it is fully loaded."""
        self._open(collection).load()

    def load_if_released(self, collection: str) -> bool:
        """Load the collection if it is not loaded nor loading; returns whether that was so."""
        if utility.load_state(collection, timeout=STATE_TIMEOUT_S) != LoadState.NotLoad:
            return False
        self.load(collection)
        return True

    def settle(self, collection: str, rows: int, timeout_s: float) -> bool:
        """Wait until `rows` rows are served from sealed segments.

        Returns False when the system reports nothing (milvus-lite has no such call) or `timeout_s` is over.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                segments = utility.get_query_segment_info(collection)
            except (MilvusException, grpc.RpcError):
                return False
            if sum(segment.num_rows for segment in segments if segment.state == SEGMENT_SEALED) >= rows:
                return True
            time.sleep(SETTLE_POLL_S)
        return False

    def prepare(self, question: Question) -> None:
        """Open the collection, so that its schema is fetched before the clock starts."""
        self._open(question.collection)

    def as_query(self, vectors: Floats) -> object:
        """Lists of floats: both releases pack a list about six times as fast as an array."""
        return vectors.tolist()

    def search(self, question: Question, query: object, timeout_s: int | None = None) -> list[list[int]]:
        """Search; the keys are read out, because the newer release decodes them only then.

        Without `timeout_s`, in whole seconds, the client library retries a server that is not ready for as
        long as it likes, with growing pauses.
        """
        below = question.bucket_below
        hits = self._open(question.collection).search(
            query,
            VECTOR,
            {"metric_type": "L2", "params": {"ef": question.ef}},
            limit=question.top_k,
            expr=None if below is None else f"{BUCKET} < {below}",
            timeout=timeout_s,
        )
        return [list(one.ids) for one in hits]

    def strong_lookup(self, collection: str, key: int) -> bool:
        """Whether a query at Strong consistency finds the row with this key."""
        rows = self._open(collection).query(f"{KEY} in [{key}]", consistency_level="Strong")
        return len(rows) > 0

    def _open(self, collection: str) -> Any:
        if collection not in self._collections:
            self._collections[collection] = Collection(collection)
        return self._collections[collection]
