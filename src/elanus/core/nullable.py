"""Columns with nulls as the values that there are, and which rows have one.

Vectors of a nullable field are stored, indexed and compared without the rows that have none: `spread` puts
these rows back where a column of all rows is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.vectors import VectorForm

Valid = npt.NDArray[np.bool_]
"""Which rows hold a value: shape (rows,)."""
Rows = npt.NDArray[np.int64]


def valid_rows(column: pa.Array) -> Valid | None:
    """Return which rows of the column are not null, shape (rows,); None if all are."""
    if not column.null_count:
        return None
    valid: Valid = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def spread(values: pa.Array, valid: Valid) -> pa.Array:
    """Return a column with the values in the rows that are ``valid``, in order, and null in the others."""
    if valid.all():
        return values
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


@dataclass(frozen=True, slots=True, eq=False)
class NullableVectors:
    """The vectors of some rows. ``vectors``: those there are, in the form's memory; ``valid``: (rows,)."""

    vectors: Any
    valid: Valid

    def __len__(self) -> int:
        return len(self.valid)

    @property
    def nbytes(self) -> int:
        return int(self.vectors.nbytes) + self.valid.nbytes


def in_memory(form: VectorForm, column: pa.Array) -> Any:
    """Return a vector column in the form's memory: of a column with nulls, `NullableVectors`."""
    valid = valid_rows(column)
    if valid is None:
        return form.to_matrix(column)
    return NullableVectors(form.to_matrix(column.drop_null()), valid)


def vector_column(form: VectorForm, vectors: Any, rows: Rows) -> pa.Array:
    """Return the vectors of these rows as a column; ``vectors``: a matrix, or `NullableVectors`."""
    if not isinstance(vectors, NullableVectors):
        return form.to_column(vectors[rows])
    valid = vectors.valid[rows]
    places = np.cumsum(vectors.valid) - 1
    return spread(form.to_column(vectors.vectors[places[rows[valid]]]), valid)
