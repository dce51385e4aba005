"""The parameters by which a search requests groups of hits instead of hits."""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping, check_group_size, grouping_fields
from elanus.core.json_keys import (
    JSON_KEY_TYPES,
    JsonKey,
    JsonPath,
    parse_json_path,
    parse_json_pointer,
    split_names,
)
from elanus.core.schema import CollectionSchema, DataType
from elanus.core.types import Family
from elanus.proxy.wire.parameters import boolean

GROUPING_FIELD = "group_by_field"
GROUPING_FIELDS = "group_by_fields"
GROUPING_SIZE = "group_size"
_STRICT = "strict_group_size"
_JSON_PATH = "json_path"
_JSON_TYPE = "json_type"
_STRICT_CAST = "strict_cast"
_JSON_TYPES = {data_type.name.replace("_", "").lower(): data_type for data_type in DataType}
GROUPING_PARAMS = frozenset(
    {GROUPING_FIELD, GROUPING_FIELDS, GROUPING_SIZE, _STRICT, _JSON_PATH, _JSON_TYPE, _STRICT_CAST}
)
"""The names of these parameters. Without a field to group by, the others have no effect."""


def grouping(params: Mapping[str, str], schema: CollectionSchema) -> Grouping | None:
    """Return the requested grouping; ``None`` if the search is not grouped.

    Raises `FieldNotFound`, `InvalidParameter`.
    """
    names = _names(params)
    if not names:
        return None
    keys = [_json_key(name, params, schema) for name in names]
    inside = [key for key in keys if key is not None]
    if len(inside) > 1:
        raise InvalidParameter(
            "at most one of the group_by_fields may be a value inside a JSON field, got: "
            + ", ".join(key.name for key in inside)
        )
    fields = tuple(name if key is None else key.field for name, key in zip(names, keys, strict=True))
    found = inside[0] if inside else None
    grouping_fields(schema, fields, found)
    return Grouping(fields, _size(params), _is_true(params, _STRICT), found)


def _json_key(name: str, params: Mapping[str, str], schema: CollectionSchema) -> JsonKey | None:
    """Return the value inside a JSON field that a name and parameters mean; None: a field of its own."""
    field = schema.by_name.get(name)
    path: JsonPath = ()
    if field is None:
        parsed = parse_json_path(name)
        if parsed is None:
            return None
        head, path = parsed
        field = schema.by_name.get(head)
        if field is None and schema.dynamic_field is not None:
            field, path = schema.dynamic_field, (head, *path)
    if field is None or field.kind.family is not Family.JSON:
        return None
    pointer = params.get(_JSON_PATH, "")
    if pointer:
        path = parse_json_pointer(pointer)
    data_type = _JSON_TYPES.get(params.get(_JSON_TYPE, "").lower())
    if data_type is not None and data_type not in JSON_KEY_TYPES:
        raise InvalidParameter(
            f"unsupported data type {data_type.name} for group by operator: {_JSON_TYPE} of {name}; "
            "use Bool, Int8, Int16, Int32, Int64 or VarChar"
        )
    return JsonKey(name + pointer, field.name, path, data_type, _is_true(params, _STRICT_CAST))


def _names(params: Mapping[str, str]) -> tuple[str, ...]:
    """The single field of older clients has precedence over the list of newer ones, as in the reference."""
    single = params.get(GROUPING_FIELD, "").strip()
    if single:
        return (single,)
    return tuple(dict.fromkeys(split_names(params.get(GROUPING_FIELDS, ""))))


def _size(params: Mapping[str, str]) -> int:
    text = params.get(GROUPING_SIZE)
    if text is None:
        return 1
    try:
        return check_group_size(int(text))
    except ValueError:
        raise InvalidParameter(f"failed to parse input group size:{text}") from None


def _is_true(params: Mapping[str, str], name: str) -> bool:
    try:
        return boolean(params, name)
    except InvalidParameter:
        return False  # as in the reference
