"""A block's vectors: searched in memory, handed out from wherever there is one copy of them.

An index that holds its vectors is also where output columns come from. Where it holds codes only, or a
field is not indexed at all, the vectors stay in the segment's files and single rows are read on demand: a
row group (about 8 MB) per hit at worst, for which no memory is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.schema import DataType, FieldSchema
from elanus.core.segments import BinlogFile
from elanus.index import VectorIndex
from elanus.storage.binlog import Matrix, vector_array, vectors_of
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """``index`` None: the field cannot be searched. ``fetch``: the vectors of rows, in any order."""

    field: FieldSchema
    index: VectorIndex | None
    fetch: Callable[[Rows], Matrix]

    @classmethod
    def held(cls, field: FieldSchema, index: VectorIndex) -> VectorColumn:
        """Vectors that the index holds."""
        return cls(field, index, index.reconstruct)

    @classmethod
    def filed(
        cls, field: FieldSchema, index: VectorIndex | None, store: ObjectStore, files: Sequence[BinlogFile]
    ) -> VectorColumn:
        """Vectors that only the segment's files hold."""
        stored = _FiledVectors(store, tuple(files), field)
        return cls(field, index, stored.fetch)

    @property
    def memory_bytes(self) -> int:
        return 0 if self.index is None else self.index.memory_bytes

    def take(self, rows: Rows) -> pa.Array:
        """The vectors of these rows, as the schema's Arrow type."""
        return vector_array(self.fetch(rows), self.field.arrow_type)


@dataclass(frozen=True, slots=True)
class _FiledVectors:
    """Single rows of a vector column, out of Parquet files. Safe for many threads."""

    store: ObjectStore
    files: tuple[BinlogFile, ...]
    field: FieldSchema

    def fetch(self, rows: Rows) -> Matrix:
        """Raises `ObjectMissing` and `CorruptObject`."""
        vectors = self._empty(len(rows))
        starts = np.array([0, *accumulate(file.rows for file in self.files)])
        file_of = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(file_of).tolist():
            wanted = np.flatnonzero(file_of == number)
            self._fetch_from(self.files[number], rows[wanted] - starts[number], vectors, wanted)
        return vectors

    def _empty(self, rows: int) -> Matrix:
        if self.field.data_type is DataType.BINARY_VECTOR:
            return np.empty((rows, self.field.dim // 8), dtype=np.uint8)
        return np.empty((rows, self.field.dim), dtype=np.float32)

    def _fetch_from(self, file: BinlogFile, rows: Rows, vectors: Matrix, places: Rows) -> None:
        """Row ``rows[i]`` of the file goes to ``vectors[places[i]]``."""
        with opened(self.store, file.path, INSERT_LOG) as parquet:
            groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
            starts = np.array([0, *accumulate(groups)])
            group_of = np.searchsorted(starts, rows, side="right") - 1
            for number in np.unique(group_of).tolist():
                wanted = np.flatnonzero(group_of == number)
                column = parquet.read_row_group(number, columns=[self.field.name]).column(0)
                vectors[places[wanted]] = vectors_of(column.combine_chunks())[rows[wanted] - starts[number]]
