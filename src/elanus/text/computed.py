"""The columns that a schema's functions compute.

In the log, and in memory until a read needs them, such a column has an empty vector in each row, or one of
zeros. The jobs that write segments fill it.
"""

from __future__ import annotations

import pyarrow as pa

from elanus.core.functions import MINHASH, Function
from elanus.core.schema import CollectionSchema
from elanus.text.fields import analyzers_of
from elanus.text.signatures import SignatureRows
from elanus.text.terms import TermRows


def with_computed_columns(schema: CollectionSchema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with what the schema's functions compute from their other columns.

    ``rows``: the schema's columns, and perhaps others.
    """
    for function in schema.computed_functions:
        place = rows.schema.get_field_index(function.output)
        rows = rows.set_column(place, rows.schema.field(place), computed_column(schema, function, rows))
    return rows


def computed_column(schema: CollectionSchema, function: Function, rows: pa.RecordBatch) -> pa.Array:
    """Return a function's output column. ``rows``: its `inputs_of`, and perhaps other columns."""
    if function.kind == MINHASH:
        return computed_signatures(schema, function, rows).to_column()
    return computed_terms(schema, function, rows).rows.to_column()


def inputs_of(schema: CollectionSchema, function: Function) -> list[str]:
    """Return the names of the columns that a function reads."""
    by_field = analyzers_of(schema.field(function.input)).by_field
    return [function.input, by_field] if by_field else [function.input]


def computed_terms(
    schema: CollectionSchema, function: Function, rows: pa.RecordBatch, known: TermRows | None = None
) -> TermRows:
    """Return a BM25 function's vectors of some rows. ``known``: those of the first of them."""
    field = schema.field(function.input)
    by_field = analyzers_of(field).by_field
    names = rows.column(by_field) if by_field else None
    return TermRows(field, rows.column(field.name), names, None if known is None else known.made)


def computed_signatures(
    schema: CollectionSchema, function: Function, rows: pa.RecordBatch, known: SignatureRows | None = None
) -> SignatureRows:
    """Return a MinHash function's vectors of some rows. ``known``: those of the first of them."""
    field = schema.field(function.input)
    by_field = analyzers_of(field).by_field
    names = rows.column(by_field) if by_field else None
    return SignatureRows(
        field,
        schema.field(function.output),
        function,
        rows.column(field.name),
        names,
        None if known is None else known.made,
    )
