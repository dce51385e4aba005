"""The columns of an insert or upsert request to one `pyarrow.RecordBatch`.

The wire converts the messages to Arrow columns; `elanus.core.rows` checks that they fit the schema.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.moments import DEFAULT_TIMEZONE
from elanus.core.rows import Given, check_sent, conform
from elanus.core.schema import DYNAMIC_FIELD, CollectionSchema, FieldSchema
from elanus.core.structs import check_lengths
from elanus.proxy.wire.columns import decode_column
from elanus.proxy.wire.structs import flattened
from elanus.proxy.wire.stubs import schema_pb2


def decode_rows(
    schema: CollectionSchema,
    columns: Iterable[schema_pb2.FieldData],
    rows: int,
    *,
    with_auto_key: bool,
    zone: str = DEFAULT_TIMEZONE,
    partial: bool = False,
) -> pa.RecordBatch:
    """Return a request's ``fields_data`` as a batch of ``rows`` rows, columns in the schema's order.

    An auto-id primary key is left out of the batch, and must not be sent, unless ``with_auto_key``
    (upserts name the rows they replace by it). ``zone``: the time zone of moments without an
    offset. ``partial``: columns that are not sent are left out.

    Raises `InvalidParameter`, `InvalidDimension`.
    """
    if rows <= 0:
        raise InvalidParameter(f"num_rows should be greater than 0, got {rows}")
    # The dynamic column may arrive without a name, flagged as dynamic.
    named = [(DYNAMIC_FIELD if column.is_dynamic else name, column) for name, column in flattened(columns)]
    check_sent(schema, [name for name, _ in named], with_auto_key=with_auto_key)
    sent = dict(named)

    def given(field: FieldSchema) -> Given | None:
        return decode_column(field, sent[field.name], rows) if field.name in sent else None

    only = frozenset(sent) if partial else None
    batch = conform(schema, given, rows, with_auto_key=with_auto_key, zone=zone, only=only)
    check_lengths(schema.structs, batch)
    return batch
