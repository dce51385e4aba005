"""Columns of a user's Parquet file in the plain types of the same values.

Polars writes texts and bytes as views; pandas and pyarrow write categories, also within lists, and types that
Arrow extends: booleans of a byte each, and tensors, of which those of one dimension are vectors. A JSON
document stays one (`elanus.core.given_types.is_document`): a text in its place would mean something else.
"""

from __future__ import annotations

import pyarrow as pa


def plain_schema(columns: pa.Schema) -> pa.Schema:
    """Return the columns with plain types in place of these, also within lists, structs and maps."""
    return pa.schema([column.with_type(_plain(column.type)) for column in columns])


def plain_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of such columns. Nothing is copied if all types are plain."""
    plain = plain_schema(rows.schema)
    return rows if plain.equals(rows.schema) else rows.cast(plain)


def _plain(found: pa.DataType) -> pa.DataType:
    match getattr(found, "extension_name", ""):
        case "arrow.bool8":
            return pa.bool_()
        case "arrow.fixed_shape_tensor" if len(found.shape) == 1:
            return pa.list_(found.value_type, found.shape[0])
    if pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_binary_view(found):
        return pa.binary()
    if pa.types.is_dictionary(found):
        return pa.dictionary(found.index_type, _plain(found.value_type), found.ordered)
    if pa.types.is_map(found):
        return pa.map_(_inside(found.key_type), _inside(found.item_type))
    if pa.types.is_struct(found):
        return pa.struct([member.with_type(_inside(member.type)) for member in found])
    if not (pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)):
        return found
    values = found.value_field.with_type(_inside(found.value_type))
    if pa.types.is_fixed_size_list(found):
        return pa.list_(values, found.list_size)
    return pa.list_(values) if pa.types.is_list(found) else pa.large_list(values)


def _inside(found: pa.DataType) -> pa.DataType:
    """Dictionaries of whole columns are decoded where the column is, those of elements here."""
    return _plain(found.value_type if pa.types.is_dictionary(found) else found)
