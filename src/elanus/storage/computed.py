"""The vectors of a field in a segment's files, whether or not the files have the field yet.

Files that were written before a field was added lack its column: their rows have no vector. If the field is
the output of a function, the vectors are computed from the rows' texts whenever they are read, row group by
row group, until compaction has written them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from elanus.core.errors import Internal
from elanus.core.functions import Function
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import BinlogFile
from elanus.storage.binlog import Files, VectorReader, absent_fields, field_of, files_of, open_insert_log
from elanus.storage.parquet import numbered
from elanus.storage.port import ObjectStore
from elanus.text import computed_column, inputs_of


def read_field_vectors(
    store: ObjectStore,
    source: Files,
    schema: CollectionSchema | None,
    field: FieldSchema,
    scratch: Path | None = None,
) -> Any:
    """Return what a `VectorReader` returns of a segment's files, for those that lack the field too.

    Rows in the order of the manifest's files. ``schema``: needed for the outputs of functions. Raises
    `ValueError` when there are no files, `FieldNotFound` for a column they lack, `ObjectMissing` and
    `CorruptObject` naming the file, and `DiskFull`.
    """
    files = files_of(source)
    reader = FieldReader(field, schema, sum(file.rows for file in files), scratch)
    for file in files:
        with open_insert_log(store, file) as parquet:
            reader.read(parquet, file)
    return reader.finish()


class FieldReader(VectorReader):
    """Collects the vectors of a field from open insert logs, one file after the other, those that lack the
    field included: see `read_field_vectors`.

    ``rows``: those of all files.
    """

    def __init__(
        self, field: FieldSchema, schema: CollectionSchema | None, rows: int, scratch: Path | None = None
    ) -> None:
        super().__init__(field.name, rows, scratch)
        self._field = field
        self._schema = schema
        self._column = numbered(field_of(field), field.field_id, field.data_type)

    def read(self, parquet: pq.ParquetFile, file: BinlogFile) -> None:
        """Append the vectors of the next file. Raises `FieldNotFound` and `DiskFull`."""
        field = self._field
        if not field.is_added or not absent_fields(parquet.schema_arrow, [field.name], [field]):
            super().read(parquet, file)
        elif not field.is_function_output:
            self._begin(self._column)
            self._add_none(file.rows)
        else:
            self._begin(self._column)
            self._compute(parquet)

    def _compute(self, parquet: pq.ParquetFile) -> None:
        """Append the vectors that the rows' texts give, a row group at a time."""
        schema = self._schema
        function = _function(schema, self._field)
        assert schema is not None  # it has the function
        names = inputs_of(schema, function)
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, columns=names, use_threads=False)
            for batch in table.select(names).to_batches():
                self._add(computed_column(schema, function, batch))


def _function(schema: CollectionSchema | None, field: FieldSchema) -> Function:
    function = None if schema is None else schema.function_of(field)
    if function is None:
        raise Internal(f"the function that computes field {field.name} is not known here")
    return function
