"""The vectors of a field in a segment's files, where a function computes those that files lack.

A function that is added to a collection finds rows that were written without its output. The vectors of such
rows are computed from their texts whenever they are read, row group by row group, until compaction has
written them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from elanus.core.errors import Internal
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
    """Return what `elanus.storage.binlog.read_vectors` returns, with computed vectors where files lack them.

    ``schema``: needed for the outputs of functions that were added. Raises what `read_vectors` raises.
    """
    if not lacks_computed(store, source, field):
        return read_vectors(store, source, field.name, scratch)
    function = None if schema is None else schema.function_of(field)
    if schema is None or function is None:
        raise Internal(f"the function that computes field {field.name} is not known here")
    files = _files(source)
    filling = filling_of(field.vector, field.arrow_type, sum(file.rows for file in files), scratch)
    names = inputs_of(schema, function)
    for file in files:
        with opened(store, file.path, INSERT_LOG) as parquet:
            absent = absent_fields(parquet.schema_arrow, [field.name], [field])
            for group in range(parquet.num_row_groups):
                wanted = names if absent else [field.name]
                table = parquet.read_row_group(group, columns=wanted, use_threads=False)
                for batch in table.select(wanted).to_batches():
                    filling.add(computed_column(schema, function, batch) if absent else batch.column(0))
    return filling.finish()


def lacks_computed(store: ObjectStore, source: Files, field: FieldSchema) -> bool:
    """Whether a file lacks the field's column because its function was added later."""
    if not (field.is_added and field.is_function_output):
        return False
    return any(_lacks(store, file, field) for file in _files(source))


def _lacks(store: ObjectStore, file: BinlogFile, field: FieldSchema) -> bool:
    with opened(store, file.path, INSERT_LOG) as parquet:
        stored: pa.Schema = parquet.schema_arrow
        return bool(absent_fields(stored, [field.name], [field]))


def _files(source: Files) -> Sequence[BinlogFile]:
    return source.insert_logs if isinstance(source, SegmentManifest) else source
