"""A block's vectors: searched in memory, and returned from the one place that holds them.

If an index holds its vectors, output columns are read from it too. If it holds only codes, or a field is not
indexed at all, the vectors stay in the segment's files and single rows are read on demand. At worst this
reads a row group (about 8 MB) per hit, but keeps no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.nullable import NullableVectors, Valid, spread
from elanus.core.schema import FieldSchema
from elanus.core.segments import BinlogFile
from elanus.core.types import Matrix
from elanus.core.vector_lists import VectorLists
from elanus.index import ElementIndex, IndexSpec, MaxSimIndex, NullableIndex, VectorIndex, over_rows
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """The vectors of one field.

    ``index``: None if the field cannot be searched. ``fetch``: returns the vectors of rows, in any order; all
    of them have one. ``read_valid``: returns which rows have one, (rows,); None: all have.
    """

    field: FieldSchema
    index: VectorIndex | None
    fetch: Callable[[Rows], Matrix]
    read_valid: Callable[[], Valid | None]

    @classmethod
    def held(cls, field: FieldSchema, index: VectorIndex) -> VectorColumn:
        """Vectors that the index holds."""
        return cls(field, index, index.reconstruct, lambda: _valid_in(index))

    @classmethod
    def of_lists(cls, field: FieldSchema, spec: IndexSpec, column: pa.Array) -> VectorColumn:
        """Lists of vectors that the block has as a column, and that are searched where they are."""
        lists = VectorLists.from_column(field.vector, field.dim, column)
        return cls.held(field, over_rows(spec.data_type, field.dim, spec.metric_type, lists, spec.params))

    @classmethod
    def filed(
        cls, field: FieldSchema, index: VectorIndex | None, store: ObjectStore, files: Sequence[BinlogFile]
    ) -> VectorColumn:
        """Vectors that only the segment's files hold."""
        stored = _FiledVectors(store, tuple(files), field)
        if index is None and field.nullable:
            return cls(field, index, stored.fetch, cache(stored.valid))
        return cls(field, index, stored.fetch, lambda: _valid_in(index))

    @classmethod
    def read_once(
        cls, field: FieldSchema, index: VectorIndex | None, read: Callable[[], Any]
    ) -> VectorColumn:
        """Vectors that ``read`` returns as a whole, kept from the first time that they are wanted.

        ``read``: a matrix or `NullableVectors`, the same each time.
        """

        def fetch(rows: Rows) -> Matrix:
            vectors = read()
            found: Matrix
            if isinstance(vectors, NullableVectors):
                found = vectors.vectors[(np.cumsum(vectors.valid) - 1)[rows]]
            else:
                found = vectors[rows]
            return found

        def valid() -> Valid | None:
            vectors = read()
            return vectors.valid if isinstance(vectors, NullableVectors) else None

        return cls(field, index, fetch, valid if index is None else lambda: _valid_in(index))

    @property
    def memory_bytes(self) -> int:
        return 0 if self.index is None else self.index.memory_bytes

    @property
    def is_copy(self) -> bool:
        """Whether the index holds its own vectors, even where the block has the column: a column with nulls
        is compared without them."""
        if isinstance(self.index, ElementIndex | MaxSimIndex):
            return not self.index.is_view
        return isinstance(self.index, NullableIndex)

    def take(self, rows: Rows) -> pa.Array:
        """Return the vectors of these rows, as the schema's Arrow type; null for those without one."""
        valid = self.read_valid()
        if valid is None:
            return self.field.vector.to_column(self.fetch(rows))
        wanted = valid[rows]
        if not wanted.any():
            return pa.nulls(len(rows), self.field.arrow_type)
        return spread(self.field.vector.to_column(self.fetch(rows[wanted])), wanted)

    def presence(self, rows: int) -> pa.Array:
        """Return a column of ``rows`` rows that is null where these have no vector, and says no more."""
        valid = self.read_valid()
        return pa.repeat(True, rows) if valid is None else pa.array(valid, mask=~valid)


def _valid_in(index: VectorIndex | None) -> Valid | None:
    return index.valid if isinstance(index, NullableIndex) else None


@dataclass(frozen=True, slots=True)
class _FiledVectors:
    """Reads single rows of a vector column from Parquet files. Safe for many threads."""

    store: ObjectStore
    files: tuple[BinlogFile, ...]
    field: FieldSchema

    def fetch(self, rows: Rows) -> Matrix:
        """Return the vectors of these rows. Raises `ObjectMissing` and `CorruptObject`."""
        form = self.field.vector
        if not len(rows):
            return form.to_matrix(pa.array([], form.arrow_type(self.field.dim)))
        found, places = [], []
        starts = np.array([0, *accumulate(file.rows for file in self.files)])
        file_of = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(file_of).tolist():
            wanted = np.flatnonzero(file_of == number)
            for vectors, part in self._fetch_from(self.files[number], rows[wanted] - starts[number]):
                found.append(vectors)
                places.append(wanted[part])
        order = np.empty(len(rows), dtype=np.int64)
        order[np.concatenate(places)] = np.arange(len(rows))
        matrix: Matrix = form.joined(found)[order]
        return matrix

    def valid(self) -> Valid | None:
        """Return which rows have a vector; None: all have. Reads the whole column, a row group at a time."""
        found = [np.empty(0, dtype=np.bool_)]
        for file in self.files:
            with opened(self.store, file.path, INSERT_LOG) as parquet:
                for number in range(parquet.num_row_groups):
                    column = parquet.read_row_group(number, columns=[self.field.name]).column(0)
                    found.append(column.is_valid().to_numpy())
        valid = np.concatenate(found)
        return None if valid.all() else valid

    def _fetch_from(self, file: BinlogFile, rows: Rows) -> Iterator[tuple[Matrix, Rows]]:
        """Yield the vectors of some of the file's rows, and the places of these rows in ``rows``.

        All of these rows have one.
        """
        form = self.field.vector
        with opened(self.store, file.path, INSERT_LOG) as parquet:
            groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
            starts = np.array([0, *accumulate(groups)])
            group_of = np.searchsorted(starts, rows, side="right") - 1
            for number in np.unique(group_of).tolist():
                wanted = np.flatnonzero(group_of == number)
                column = parquet.read_row_group(number, columns=[self.field.name]).column(0)
                local = rows[wanted] - starts[number]
                if column.null_count:
                    yield form.to_matrix(column.take(pa.array(local)).combine_chunks()), wanted
                else:
                    yield form.to_matrix(column.combine_chunks())[local], wanted
