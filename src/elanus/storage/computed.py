"""The vectors of a field in a segment's files, whether or not the files have the field yet.

Files that were written before a field was added lack its column: their rows have no vector. If the field is
the output of a function, the vectors are computed from the rows' texts whenever they are read, row group by
row group, until compaction has written them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from elanus.core.errors import Internal
from elanus.core.functions import Function
from elanus.core.nullable import NullableVectors, Valid
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.storage.binlog import Files, absent_fields, read_vectors
from elanus.storage.parquet import opened
from elanus.storage.paths import INSERT_LOG
from elanus.storage.port import ObjectStore
from elanus.storage.vectors import filling_of
from elanus.text import computed_column, inputs_of


def read_field_vectors(
    store: ObjectStore,
    source: Files,
    schema: CollectionSchema | None,
    field: FieldSchema,
    scratch: Path | None = None,
) -> Any:
    """Return what `elanus.storage.binlog.read_vectors` returns, for files that lack the field too.

    ``schema``: needed for the outputs of functions. Raises what `read_vectors` raises.
    """
    if not lacks_vectors(store, source, field):
        return read_vectors(store, source, field.name, scratch)
    function = _function(schema, field) if field.is_function_output else None
    files = _files(source)
    filling = filling_of(field.vector, field.arrow_type, sum(file.rows for file in files), scratch)
    valid: list[Valid] = [np.empty(0, dtype=np.bool_)]
    for file in files:
        if function is None and _lacks(store, file, field):
            valid.append(np.zeros(file.rows, dtype=np.bool_))
            continue
        for chunk in _chunks(store, file, schema, field, function):
            valid.append(chunk.is_valid().to_numpy(zero_copy_only=False))
            filling.add(chunk.drop_null() if chunk.null_count else chunk)
    vectors, all_valid = filling.finish(), np.concatenate(valid)
    return vectors if all_valid.all() else NullableVectors(vectors, all_valid)


def lacks_vectors(store: ObjectStore, source: Files, field: FieldSchema) -> bool:
    """Whether a file lacks the field's column because the field was added later."""
    return field.is_added and any(_lacks(store, file, field) for file in _files(source))


def _chunks(
    store: ObjectStore,
    file: BinlogFile,
    schema: CollectionSchema | None,
    field: FieldSchema,
    function: Function | None,
) -> Any:
    """Yield the column of a file, stored or computed, a row group at a time."""
    with opened(store, file.path, INSERT_LOG) as parquet:
        computes = bool(absent_fields(parquet.schema_arrow, [field.name], [field]))
        for group in range(parquet.num_row_groups):
            if not computes:
                yield from parquet.read_row_group(group, columns=[field.name], use_threads=False)[0].chunks
                continue
            assert schema is not None
            assert function is not None
            names = inputs_of(schema, function)
            table = parquet.read_row_group(group, columns=names, use_threads=False)
            for batch in table.select(names).to_batches():
                yield computed_column(schema, function, batch)


def _function(schema: CollectionSchema | None, field: FieldSchema) -> Function:
    function = None if schema is None else schema.function_of(field)
    if function is None:
        raise Internal(f"the function that computes field {field.name} is not known here")
    return function


def _lacks(store: ObjectStore, file: BinlogFile, field: FieldSchema) -> bool:
    with opened(store, file.path, INSERT_LOG) as parquet:
        stored: pa.Schema = parquet.schema_arrow
        return bool(absent_fields(stored, [field.name], [field]))


def _files(source: Files) -> Sequence[BinlogFile]:
    return source.insert_logs if isinstance(source, SegmentManifest) else source
