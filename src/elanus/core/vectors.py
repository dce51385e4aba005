"""The forms of vectors: how the vectors of a type are stored, converted and compared.

A dense form (`VectorForm`) holds the vectors of a column as a matrix; `elanus.core.sparse` adds the form of
sparse vectors. `elanus.core.types` says which type has which form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.limits import DIMENSION_MAX
from elanus.core.metrics import Metric

Matrix = npt.NDArray[Any]
"""Vectors as rows: (n, `VectorForm.width`), of `VectorForm.dtype`."""


class Space(Enum):
    """The form of vectors during comparison; the enum value is the word used in error messages."""

    FLOATS = "float"
    """Queries, and rows during comparison, are float32 (n, dim)."""
    BITS = "binary"
    """uint8 (n, dim / 8)."""
    SPARSE = "sparse"
    """Queries are uint64 (n, pairs of the longest), see `elanus.core.sparse.padded`."""


@cache
def dtype_of(name: str) -> np.dtype[Any]:
    """Return numpy's type of this name, or that of ml_dtypes, which is imported for bfloat16 only."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


_COMPARED: Mapping[Space, np.dtype[Any]] = {
    Space.FLOATS: np.dtype(np.float32),
    Space.BITS: np.dtype(np.uint8),
    Space.SPARSE: np.dtype("<u8"),
}


@dataclass(frozen=True, slots=True, eq=False)
class VectorForm:
    """How vectors of a type are stored, converted and compared.

    ``dtype_name``: that of `dtype`; ``dims_per_value``: how many dimensions one stored value holds; ``dim``
    is a multiple of it. ``element``: the Arrow type of a list's items; None if Arrow holds a vector as bytes.
    ``metrics``: those that compare such vectors; ``default_metric``: the one if none is named.
    ``engine_name``: the type's name in the messages of the reference's filter engine.
    """

    space: Space
    dtype_name: str
    element: pa.DataType | None
    metrics: tuple[Metric, ...]
    default_metric: Metric
    engine_name: str
    dims_per_value: int = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of one stored value."""
        return dtype_of(self.dtype_name)

    @property
    def has_dim(self) -> bool:
        """Whether a field of such vectors declares a dimension."""
        return self.space is not Space.SPARSE

    @property
    def dim_max(self) -> int:
        return DIMENSION_MAX * self.dims_per_value

    def width(self, dim: int) -> int:
        """Return the number of columns of a matrix of such vectors."""
        return dim // self.dims_per_value

    def row_bytes(self, dim: int) -> int:
        """Bytes of one stored vector."""
        return dim // self.dims_per_value * self.dtype.itemsize

    def arrow_type(self, dim: int) -> pa.DataType:
        return _vector_arrow_type(self, dim)

    def dim_of(self, arrow_type: pa.DataType) -> int:
        """Return the dimension of vectors in a column of such a type: the inverse of `arrow_type`."""
        if self.element is None:
            return int(arrow_type.byte_width) // self.dtype.itemsize * self.dims_per_value
        return int(arrow_type.list_size) * self.dims_per_value

    def empty(self, rows: int, dim: int) -> Matrix:
        """Return an uninitialized matrix."""
        return np.empty((rows, self.width(dim)), dtype=self.dtype)

    def to_matrix(self, column: pa.Array) -> Matrix:
        """Return a column without nulls as a matrix (n, width) that shares its memory.

        Sparse vectors: `elanus.core.sparse.SparseRows`, which has a length, takes rows and counts its bytes
        as a matrix does.
        """
        return self.to_values(column).reshape(len(column), self.width(self.dim_of(column.type)))

    def to_values(self, column: pa.Array) -> Matrix:
        """Return the stored values of a column without nulls, (n · width,), sharing its memory."""
        if self.element is not None:
            flat: Matrix = column.flatten().to_numpy()
            return flat
        if not len(column):  # such a column may have no memory at all
            return np.empty(0, dtype=self.dtype)
        row_bytes = column.type.byte_width
        data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
        start = column.offset * row_bytes
        values: Matrix = data[start : start + len(column) * row_bytes].view(self.dtype)
        return values

    def filled(self, column: pa.Array) -> pa.Array:
        """Return the column with zeros in place of its nulls; sparse vectors: with no pairs."""
        return column if column.null_count == 0 else pc.fill_null(column, self._zero(column.type))

    def _zero(self, arrow_type: pa.DataType) -> pa.Scalar:
        zero = bytes(arrow_type.byte_width) if self.element is None else [0] * arrow_type.list_size
        return pa.scalar(zero, type=arrow_type)

    def to_column(self, matrix: Matrix) -> pa.Array:
        """Return a matrix (n, width) as a column of `arrow_type`. Shares its memory where it is
        contiguous."""
        arrow_type = self.arrow_type(matrix.shape[1] * self.dims_per_value)
        flat = np.ascontiguousarray(matrix, dtype=self.dtype).reshape(-1)
        if self.element is None:
            return pa.Array.from_buffers(arrow_type, len(matrix), [None, pa.py_buffer(flat.view(np.uint8))])
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=arrow_type)

    def joined(self, parts: Sequence[Matrix]) -> Matrix:
        """Return the rows of several matrices, one after the other; at least one matrix."""
        return np.concatenate(parts)

    def first_not_finite(self, values: npt.NDArray[Any]) -> int | None:
        """Return the position of the first NaN or infinity among stored values of shape (n · width,), if
        any."""
        if self.space is Space.BITS or self.dtype.kind in "iu":
            return None
        finite = np.isfinite(values)
        return None if finite.all() else int(np.argmin(finite))

    @property
    def is_compared_as_stored(self) -> bool:
        """Whether the stored form is the form for comparison."""
        return self.dtype == _COMPARED[self.space]

    def compared(self, matrix: Matrix) -> Matrix:
        """Stored or query vectors in the form for comparison: C-contiguous, see `Space`."""
        dtype = _COMPARED[self.space]
        if matrix.dtype is dtype and matrix.flags.c_contiguous:
            return matrix
        return np.ascontiguousarray(matrix, dtype=dtype)


@lru_cache(maxsize=1024)
def _vector_arrow_type(form: VectorForm, dim: int) -> pa.DataType:
    """Cached: every insert needs it, and making one takes as long as reading ten vectors."""
    if form.element is None:
        return pa.binary(form.row_bytes(dim))
    return pa.list_(pa.field("item", form.element, nullable=False), form.width(dim))
