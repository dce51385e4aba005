"""Texts and bytes in Arrow's view types, as Polars writes them, in the plain types of the same values."""

from __future__ import annotations

import pyarrow as pa


def plain_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns with plain types in place of views, also within lists, structs and maps."""
    return pa.schema([column.with_type(_plain(column.type)) for column in columns])


def plain_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of such columns. Nothing is copied if there are no views."""
    plain = plain_schema(rows.schema)
    return rows if plain.equals(rows.schema) else rows.cast(plain)


def _plain(found: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_binary_view(found):
        return pa.binary()
    if pa.types.is_dictionary(found):
        return pa.dictionary(found.index_type, _plain(found.value_type), found.ordered)
    if pa.types.is_map(found):
        return pa.map_(_plain(found.key_type), _plain(found.item_type))
    if pa.types.is_struct(found):
        return pa.struct([member.with_type(_plain(member.type)) for member in found])
    if not (pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)):
        return found
    values = found.value_field.with_type(_plain(found.value_type))
    if pa.types.is_fixed_size_list(found):
        return pa.list_(values, found.list_size)
    return pa.list_(values) if pa.types.is_list(found) else pa.large_list(values)
