"""The calls of a worker to the system under test: the part that pymilvus and raw faiss have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Vectors:
    """The run's data, as files that every worker maps into memory.

    Attributes:
        train: ``(rows, dimension)`` float32, the rows to insert; the primary key is the position.
        test: ``(queries, dimension)`` float32.
        buckets: ``(rows,)`` int64, uniform over 0..999: the field that filters select on.
    """

    train: Floats
    test: Floats
    buckets: Integers

    @classmethod
    def open(cls, folder: Path) -> Vectors:
        """Map ``train.npy``, ``test.npy`` and ``buckets.npy`` of `folder` read-only."""
        train, test, buckets = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("train", "test", "buckets")
        )
        return cls(train, test, buckets)


@dataclass(frozen=True)
class Question:
    """One kind of search, repeated with different query vectors.

    Attributes:
        collection: the collection's name.
        ef: HNSW's search width; at least `top_k`.
        top_k: neighbors asked for.
        bucket_below: when given, only rows with ``bucket < bucket_below`` may be returned.
    """

    collection: str
    ef: int
    top_k: int
    bucket_below: int | None = None


class Engine(Protocol):
    """One client of one system."""

    def create(self, collection: str) -> None:
        """Make an empty collection of ``(id, bucket, vector)`` rows."""

    def insert(self, collection: str, ids: Integers, buckets: Integers, vectors: Floats) -> None:
        """Insert one batch; returns when the system has acknowledged it."""

    def build_index(self, collection: str, m: int, ef_construction: int) -> None:
        """Build HNSW over all rows under L2; returns when it is finished."""

    def prepare(self, question: Question) -> None:
        """Do once what must not be counted in the searches: open, parse, build a selector."""

    def as_query(self, vectors: Floats) -> object:
        """The form in which the client library takes ``(nq, dimension)`` query vectors fastest."""

    def search(self, question: Question, query: object) -> list[list[int]]:
        """Primary keys of the nearest rows, best first, one list per query vector."""
