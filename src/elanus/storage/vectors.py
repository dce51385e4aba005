"""Collecting a vector column that is read piece by piece, in memory or in a mapped scratch file."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from elanus.core.sparse import PAIR, RowIds, SparseRows, starts_of
from elanus.core.types import VECTOR_FORMS, DataType, Matrix, VectorForm
from elanus.core.vector_lists import VectorLists
from elanus.storage.local import disk_full_reported


class Filling(Protocol):
    """Vectors being collected: `add` for each piece of the column, then `finish`."""

    def add(self, chunk: pa.Array) -> None:
        """Append the vectors of a column without nulls. Raises `DiskFull`."""

    def finish(self) -> Matrix | SparseRows:
        """Return all vectors. Nothing can be added after this."""


def filling_of(form: VectorForm, arrow_type: pa.DataType, rows: int, scratch: Path | None) -> Filling:
    """Collect ``rows`` vectors of this form and Arrow type; ``scratch``: a directory for a mapped file.

    Raises `DiskFull`.
    """
    if form.has_dim:
        return _Dense(form, form.dim_of(arrow_type), rows, scratch)
    return _Sparse() if scratch is None else _MappedSparse(scratch)


class FillingLists:
    """Lists of vectors; the bytes of these go to a file in ``scratch``, memory holds where lists begin."""

    def __init__(self, vector_bytes: int, scratch: Path) -> None:
        self._bytes = vector_bytes
        self._path = scratch / f"{uuid.uuid4().hex}.vectors"
        self._lengths: list[RowIds] = [np.empty(0, dtype=np.int64)]
        self._path.touch()

    def add(self, chunk: pa.Array) -> None:
        """Append the lists of a column without nulls. Raises `DiskFull`."""
        bits = VECTOR_FORMS[DataType.BINARY_VECTOR]
        lists = VectorLists.from_column(bits, self._bytes * bits.dims_per_value, chunk)
        self._lengths.append(np.diff(lists.offsets))
        with disk_full_reported(str(self._path)), self._path.open("ab") as file:
            lists.vectors.tofile(file)

    def finish(self) -> VectorLists:
        """Return all lists, their vectors as bytes (n, bytes). Nothing can be added after this."""
        starts = starts_of(np.concatenate(self._lengths))
        vectors = np.empty((0, self._bytes), dtype=np.uint8)
        if starts[-1]:
            shape = (int(starts[-1]), self._bytes)
            vectors = np.memmap(self._path, dtype=np.uint8, mode="r", shape=shape).view(np.ndarray)
        self._path.unlink()  # the mapping outlives the name
        return VectorLists(vectors, starts)


class _Dense:
    def __init__(self, form: VectorForm, dim: int, rows: int, scratch: Path | None) -> None:
        empty = form.empty(rows if scratch is None else 0, dim)
        self._form = form
        self._matrix = empty if scratch is None else _mapped(empty, rows, scratch)
        self._filled = 0

    def add(self, chunk: pa.Array) -> None:
        self._matrix[self._filled : self._filled + len(chunk)] = self._form.to_matrix(chunk)
        self._filled += len(chunk)

    def finish(self) -> Matrix:
        return self._matrix[: self._filled]


class _Sparse:
    """The pieces are kept as they are, and joined at the end."""

    def __init__(self) -> None:
        self._parts: list[SparseRows] = []

    def add(self, chunk: pa.Array) -> None:
        self._parts.append(SparseRows.from_column(chunk))

    def finish(self) -> SparseRows:
        parts, self._parts = self._parts, []
        return SparseRows.joined(parts) if parts else SparseRows.from_column(pa.array([], pa.binary()))


class _MappedSparse:
    """The pairs go to a file; memory holds where the rows begin."""

    def __init__(self, scratch: Path) -> None:
        self._path = scratch / f"{uuid.uuid4().hex}.vectors"
        self._lengths: list[RowIds] = [np.empty(0, dtype=np.int64)]
        self._path.touch()

    def add(self, chunk: pa.Array) -> None:
        rows = SparseRows.from_column(chunk)
        self._lengths.append(rows.lengths)
        with disk_full_reported(str(self._path)), self._path.open("ab") as file:
            rows.pairs.tofile(file)

    def finish(self) -> SparseRows:
        starts = starts_of(np.concatenate(self._lengths))
        pairs = np.empty(0, dtype=PAIR)
        if starts[-1]:
            pairs = np.memmap(self._path, dtype=PAIR, mode="r").view(np.ndarray)
        self._path.unlink()  # the mapping outlives the name
        return SparseRows(starts, pairs)


def _mapped(like: Matrix, rows: int, scratch: Path) -> Matrix:
    """Return a matrix of as many columns as ``like``, of its type, in a file.

    The space is allocated immediately: a mapped page that finds no space later would kill the process.
    """
    shape = (rows, like.shape[1])
    path = scratch / f"{uuid.uuid4().hex}.vectors"
    with disk_full_reported(str(path)), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, rows * shape[1] * like.itemsize))
    matrix = np.memmap(path, dtype=like.dtype, mode="r+", shape=shape)
    path.unlink()  # the mapping outlives the name
    return cast(Matrix, matrix)
