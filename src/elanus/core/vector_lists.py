"""Lists of vectors: the values of a vector field of a struct array, and queries that are lists.

A column is an Arrow list of fixed-size binaries, the stored values of one vector each. To compare them, all
vectors of a column are one matrix, and offsets say which of them belong to a row (`VectorLists`). A row
without a list has none, as one with an empty list.

A search with lists of vectors has one list for each query. They travel as one array of opaque bytes, a row
for each query: the number of its vectors (uint32, little-endian), then the vectors in the form for
comparison, then padding (`packed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.vectors import Matrix, VectorForm

Offsets = npt.NDArray[np.int64]
Packed = npt.NDArray[np.void]
Queries = npt.NDArray[np.float32] | npt.NDArray[np.uint8] | npt.NDArray[np.uint64] | Packed
"""The queries of a search: vectors in the form for comparison (`elanus.core.vectors.Space`), or lists."""
_COUNT = np.dtype("<u4")


@dataclass(frozen=True, slots=True, eq=False)
class VectorLists:
    """The vectors of row i are ``vectors[offsets[i] : offsets[i + 1]]``.

    ``vectors``: (n, width), in their stored form. ``offsets``: (rows + 1,), from 0 to n.
    """

    vectors: Matrix
    offsets: Offsets

    @classmethod
    def from_column(cls, form: VectorForm, dim: int, column: pa.Array) -> VectorLists:
        """``column``: nulls have no vectors. The vectors share its memory."""
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(column) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        vectors = _values(form, column.flatten()).reshape(-1, form.width(dim))
        return cls(vectors, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        return int(self.vectors.nbytes) + self.offsets.nbytes

    def row_of(self, vectors: Any) -> Any:
        """Return the rows that vectors, given by their numbers, belong to. Any shape → the same."""
        return np.searchsorted(self.offsets, vectors, side="right") - 1


def lists_at(lists: VectorLists, rows: Offsets) -> pa.Array:
    """Return the lists of these rows as a column, whatever the type of the stored values."""
    lengths = np.diff(lists.offsets)[rows]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    elements = np.arange(offsets[-1]) + np.repeat(lists.offsets[rows] - offsets[:-1], lengths)
    return _lists_of(lists.vectors[elements], offsets)


def list_column(form: VectorForm, vectors: Matrix, offsets: Offsets) -> pa.Array:
    """Return the column of these lists, without nulls.

    ``vectors``: in their stored form, (vectors, width). ``offsets``: (lists + 1,); list i has the vectors
    ``offsets[i]:offsets[i + 1]``.
    """
    return _lists_of(np.ascontiguousarray(vectors, dtype=form.dtype), offsets)


def _lists_of(flat: Matrix, offsets: Offsets) -> pa.Array:
    vector_bytes = flat.shape[1] * flat.itemsize
    content = pa.py_buffer(flat.reshape(-1).view(np.uint8))
    values = pa.Array.from_buffers(pa.binary(vector_bytes), len(flat), [None, content])
    target = pa.list_(pa.field("item", pa.binary(vector_bytes), nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=target)


def _values(form: VectorForm, column: pa.Array) -> Matrix:
    """Return the stored values in a column of fixed-size binaries, sharing its memory."""
    if not len(column):
        return np.empty(0, dtype=form.dtype)
    vector_bytes = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    start = column.offset * vector_bytes
    content = data[start : start + len(column) * vector_bytes]
    values: Matrix = content.view(form.dtype)
    return values


def packed(form: VectorForm, lists: Sequence[Matrix]) -> Packed:
    """Return queries, each a matrix (vectors, width) in its stored form, as one array (queries, bytes)."""
    contents = [
        np.array([len(vectors)], _COUNT).tobytes() + form.compared(vectors).tobytes() for vectors in lists
    ]
    width = max(map(len, contents), default=_COUNT.itemsize)
    padded = b"".join(content.ljust(width, b"\0") for content in contents)
    return np.frombuffer(padded, dtype="V1").reshape(len(lists), width)


def is_packed(queries: Queries) -> TypeGuard[Packed]:
    """Whether queries are lists of vectors."""
    return queries.dtype.kind == "V"


def vectors_in(queries: Queries) -> int:
    """Return how many vectors the queries have in all: one each, unless they are lists."""
    if not is_packed(queries):
        return len(queries)
    counts = np.ascontiguousarray(queries[:, : _COUNT.itemsize]).view(_COUNT)
    return int(counts.sum(dtype=np.int64))


def unpacked(form: VectorForm, dim: int, queries: Packed) -> list[Matrix]:
    """Return the vectors of each query in the form for comparison, (vectors, width)."""
    width = form.width(dim)
    dtype = form.compared(np.empty((0, width), dtype=form.dtype)).dtype
    lists: list[Matrix] = []
    for row in np.ascontiguousarray(queries):
        content = row.tobytes()
        count = int(np.frombuffer(content, _COUNT, 1)[0])
        values = np.frombuffer(content, dtype, count * width, offset=_COUNT.itemsize)
        lists.append(values.reshape(count, width))
    return lists
