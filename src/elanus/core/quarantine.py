"""Writes that do not fit their collection's schema: recognized by one rule, and skipped by every reader.

The proxy never writes such an entry: rows are decoded with the schema of the collection they are written to.
If such an entry is in the log anyway, written by a defective or foreign program, it must not stop the readers
of the log: they would meet it again after every restart. So each reader of the log (query node, flush task)
skips the whole entry, an upsert together with its delete. Readers agree on which entries to skip because the
rule depends only on the entry and the schema, and a schema remembers which fields older rows may lack or
have in addition (`elanus.core.added_fields`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from elanus.core.added_fields import current_columns, is_current, lacks_only_added, widened
from elanus.core.ids import CollectionID, SegmentID
from elanus.core.messages import DeleteMessage, InsertMessage, UpsertMessage, WriteMessage
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import Timestamp

NO_SEGMENT = SegmentID(0)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A log entry that is skipped. ``position``: where it is in the pchannel of ``vchannel``.

    ``segment_id``: the segment its rows are meant for, `NO_SEGMENT` for a delete. ``rows``: how many rows
    (or, of a delete, keys) it has. ``reason``: what does not fit.
    """

    vchannel: str
    collection_id: CollectionID
    segment_id: SegmentID
    position: int
    ts: Timestamp
    rows: int
    reason: str


def misfit_rows(rows: pa.RecordBatch, schema: CollectionSchema) -> str:
    """Return why rows do not fit a schema: columns, types, nulls; "" if they do. No cost per row."""
    expected = schema.arrow_schema
    names = current_columns(rows.schema, schema)
    if not lacks_only_added(names, schema):
        return f"its columns are {rows.schema.names}, the collection has {expected.names}"
    for name in names:
        field, column = expected.field(name), rows.column(name)
        if column.type != field.type:
            return f"column {field.name} is {column.type}, the collection has {field.type}"
        if column.null_count and not field.nullable:
            return f"column {field.name} has {column.null_count} nulls, but is not nullable"
    return ""


def misfit(message: WriteMessage, collection_id: CollectionID, schema: CollectionSchema) -> str:
    """Return why a write does not belong in the collection's log; "" if it does."""
    if message.collection_id != collection_id:
        return f"it is of collection {message.collection_id}, the channel is of {collection_id}"
    if isinstance(message, InsertMessage | UpsertMessage):
        replaced = message.replaced if isinstance(message, UpsertMessage) else None
        reason = misfit_rows(message.rows, schema)
        return reason or ("" if replaced is None else _misfit_keys(replaced, schema))
    return _misfit_keys(message.primary_keys, schema)


def _misfit_keys(keys: pa.Array, schema: CollectionSchema) -> str:
    key = schema.primary_field
    if keys.type != key.arrow_type:
        return f"its keys are {keys.type}, the primary key {key.name} is {key.arrow_type}"
    return f"{keys.null_count} of its keys are null" if keys.null_count else ""


def checked(
    message: WriteMessage, position: int, collection_id: CollectionID, schema: CollectionSchema
) -> WriteMessage | Quarantined:
    """Return the write with rows in exactly ``schema.arrow_schema``, or the reason why it is skipped."""
    reason = misfit(message, collection_id, schema)
    if isinstance(message, DeleteMessage):
        segment_id, rows = NO_SEGMENT, len(message.primary_keys)
    else:
        segment_id, rows = message.segment_id, message.rows.num_rows
    if reason:
        return Quarantined(
            message.vchannel, message.collection_id, segment_id, position, message.ts, rows, reason
        )
    if isinstance(message, DeleteMessage) or is_current(message.rows.schema, schema):
        return message
    # Only flags differ, or fields were added or dropped. Batches of one segment are joined later: they agree.
    return replace(message, rows=widened(message.rows, schema))
