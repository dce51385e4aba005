"""The vectors of a run, and the exact answers that recall is measured against.

A data set is an ``.npz`` with arrays ``train`` and ``test``, or a Parquet file with a column of vectors,
whose last rows then serve as queries. Any number type is taken; everything is float32 from here on, and
compared under L2. Each row gets a ``bucket``, an integer uniform over 0..999 and independent of its vector:
the field on which filters of a known selectivity are built. Vectors for sizes that no file here has are drawn
(`drawn`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

BUCKETS = 1000
SEED = 20
#: Of a Parquet file, which has no test set of its own.
PARQUET_QUERIES = 1000
#: Of vectors that are drawn.
CLUSTERS, LATENT_DIM, DRAWN_AT_ONCE = 1000, 24, 100_000


@dataclass(frozen=True)
class Dataset:
    """One run's data.

    Attributes:
        name: the file's stem.
        train: ``(rows, dimension)`` float32, C-contiguous; the primary key of a row is its position.
        test: ``(queries, dimension)`` float32, C-contiguous.
        buckets: ``(rows,)`` int64 in ``[0, BUCKETS)``.
    """

    name: str
    train: Floats
    test: Floats
    buckets: Integers

    def write(self, folder: Path) -> None:
        """Write the three arrays as ``.npy`` files, which workers map into memory."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in (("train", self.train), ("test", self.test), ("buckets", self.buckets)):
            np.save(folder / f"{name}.npy", array)

    def nearest(self, queries: int, top_k: int, bucket_below: int = BUCKETS) -> list[list[int]]:
        """Exact answers under L2 for the first `queries` test vectors.

        Args:
            bucket_below: only rows with ``bucket < bucket_below`` count.

        Returns:
            Keys per query, best first; fewer than `top_k` where fewer rows match.
        """
        keys = np.flatnonzero(self.buckets < bucket_below)
        if not len(keys):
            return [[] for _ in range(queries)]
        matching = np.ascontiguousarray(self.train[keys])
        _, positions = faiss.knn(self.test[:queries], matching, min(top_k, len(keys)))
        return [keys[row].tolist() for row in positions]


def load(path: Path, rows: int | None, queries: int, vector_column: str | None = None) -> Dataset:
    """Read a data set, cut to `rows` training vectors and at most `queries` test vectors.

    Args:
        path: an ``.npz`` or ``.parquet`` file.
        rows: None takes all.
        vector_column: for Parquet, the column to read; None when only one column holds lists of numbers.

    Raises:
        ValueError: the file has no such arrays or column, or fewer than `rows` rows.
    """
    if path.suffix == ".npz":
        train, test = _read_npz(path)
    elif path.suffix == ".parquet":
        vectors = _read_parquet(path, vector_column)
        if len(vectors) <= PARQUET_QUERIES:
            raise ValueError(f"{path} holds {len(vectors)} vectors; {PARQUET_QUERIES} are kept as queries")
        train, test = vectors[:-PARQUET_QUERIES], vectors[-PARQUET_QUERIES:]
    else:
        raise ValueError(f"cannot read {path.name}: give an .npz or a .parquet file")
    if rows is not None and rows > len(train):
        raise ValueError(f"{path.name} holds {len(train)} training vectors, fewer than the {rows} asked for")
    return _with_buckets(path.stem, _as_floats(train[:rows]), _as_floats(test[:queries]))


def drawn(rows: int, dim: int, queries: int) -> Dataset:
    """Draw vectors with the structure of embeddings: clusters of different sizes on a curved surface.

    Points of `LATENT_DIM` latent dimensions around `CLUSTERS` centers go through a random layer with a
    nonlinearity, and a little noise. So neighbors exist, unlike those of independent coordinates.
    """
    random = np.random.default_rng(SEED)
    centers = random.standard_normal((CLUSTERS, LATENT_DIM), dtype=np.float32) * 1.5
    shares = random.dirichlet(np.full(CLUSTERS, 2.0))
    layer = random.standard_normal((LATENT_DIM, dim), dtype=np.float32) / np.sqrt(LATENT_DIM)
    found = np.empty((rows + queries, dim), np.float32)
    for first in range(0, len(found), DRAWN_AT_ONCE):
        part = found[first : first + DRAWN_AT_ONCE]
        latent = centers[random.choice(CLUSTERS, len(part), p=shares)]
        latent += random.standard_normal(latent.shape, dtype=np.float32)
        np.tanh(latent @ layer, out=part)
        part += 0.05 * random.standard_normal(part.shape, dtype=np.float32)
    return _with_buckets(f"drawn-{dim}", found[:rows], found[rows:])


def _with_buckets(name: str, train: Floats, test: Floats) -> Dataset:
    buckets = np.random.default_rng(SEED).integers(0, BUCKETS, size=len(train), dtype=np.int64)
    return Dataset(name, train, test, buckets)


def _as_floats(vectors: npt.NDArray[np.generic]) -> Floats:
    return np.ascontiguousarray(vectors).astype(np.float32, copy=False)


def _read_npz(path: Path) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    with np.load(path) as arrays:
        if "train" not in arrays or "test" not in arrays:
            raise ValueError(f"{path.name} must hold arrays 'train' and 'test', has {sorted(arrays)}")
        return arrays["train"], arrays["test"]


def _read_parquet(path: Path, column: str | None) -> npt.NDArray[np.generic]:
    schema = pq.read_schema(path)
    name = column or _only_vector_column(schema, path.name)
    if name not in schema.names:
        raise ValueError(f"{path.name} has no column {name!r}, has {schema.names}")
    array = pq.read_table(path, columns=[name]).column(name).combine_chunks()
    lengths = {schema.field(name).type.list_size} if _is_fixed(array.type) else _lengths(array)
    if len(lengths) != 1:
        raise ValueError(f"the vectors of column {name!r} are of {len(lengths)} different lengths")
    values: npt.NDArray[np.generic] = array.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(array), lengths.pop())


def _only_vector_column(schema: pa.Schema, file: str) -> str:
    names: Sequence[str] = [field.name for field in schema if _is_fixed(field.type) or _is_list(field.type)]
    if len(names) != 1:
        raise ValueError(f"{file} has {len(names)} list columns {list(names)}: name one with --vector-column")
    return names[0]


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _lengths(array: pa.Array) -> set[int]:
    return set(pc.list_value_length(array).unique().to_pylist())
