"""The meaning of a client's parameters of a scalar index, and the fields that a kind indexes.

Checks are in the reference's order, with its texts: first whether the kind suits the field, then the
parameters. An index on a JSON field names the path of the values (``json_path``) and their type
(``json_cast_type``). The reference can also convert texts to numbers (``json_cast_function``); here that is
accepted and has no effect, because a filter gives the same answer with an index and without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.core.json_keys import JsonPath, parse_json_path, plain_key
from elanus.core.limits import FILTER_DEPTH_MAX
from elanus.core.schema import FieldSchema
from elanus.core.types import KINDS as DATA_TYPES
from elanus.core.types import DataType, Family, family_of, type_name
from elanus.index.scalar.params import JSON_CAST_TYPE, WHOLE_DOCUMENT, invalid, missing
from elanus.index.spec import AUTOINDEX, INDEX_TYPE_KEY, IndexKind, IndexSpec
from elanus.index.values import mapped

JSON_PATH = "json_path"
JSON_CAST_FUNCTION = "json_cast_function"
JSON_PARAMS = (JSON_PATH, JSON_CAST_TYPE, JSON_CAST_FUNCTION)
CAST_TYPES = ("BOOL", "DOUBLE", "VARCHAR", "ARRAY_BOOL", "ARRAY_DOUBLE", "ARRAY_VARCHAR", WHOLE_DOCUMENT)
_BITMAP_CAST_TYPES = ("BOOL", "VARCHAR")
_SORTED_CAST_TYPES = ("DOUBLE", "VARCHAR")
_CAST_OF_FAMILY = {
    Family.BOOL: "BOOL",
    Family.INTEGER: "DOUBLE",
    Family.FLOATING: "DOUBLE",
    Family.TEXT: "VARCHAR",
}


def resolve_scalar(
    sent: Mapping[str, object], data_type: DataType, kinds: Sequence[IndexKind], others: Mapping[str, Any]
) -> IndexSpec:
    """Return the index that a client's parameters describe, for a scalar field of this type.

    ``kinds``: those that index the type; ``others``: every kind by name. Raises `InvalidParameter`.
    """
    declared, kind = _kind(sent.get(INDEX_TYPE_KEY), data_type, kinds, others)
    params: dict[str, Any] = {}
    if data_type is DataType.JSON:
        params = _json_params(sent, kind)
    for name, param in kind.build_params.items():
        params[name] = param.resolve(name, sent, 0)
    return IndexSpec(
        kind=kind,
        data_type=data_type,
        params=params,
        declared_type=declared,
        memory_mapped=mapped(sent, default=True),
    )


def _kind(
    name: object, data_type: DataType, kinds: Sequence[IndexKind], others: Mapping[str, Any]
) -> tuple[str, IndexKind]:
    """Return the type as declared, and the kind."""
    if name is None or name == "" or name == AUTOINDEX:
        only = kinds[0] if len(kinds) == 1 else None
        automatic = next((kind for kind in kinds if kind.is_automatic), only)
        if automatic is None:
            raise InvalidParameter(
                f"create auto index on {type_name(data_type)} field is not supported: "
                "invalid parameter[expected=supported field]"
            )
        return AUTOINDEX, automatic
    for kind in kinds:
        if str(name) == kind.name or (kind.name == "Trie" and str(name).upper() == "TRIE"):
            return kind.name, kind
    if name in others or str(name).upper() == "TRIE":
        raise invalid(_unsuited(str(name), data_type))
    suited = ", ".join((*(kind.name for kind in kinds), AUTOINDEX))
    raise InvalidParameter(
        f"invalid parameter[expected=valid index][actual=invalid index type: {name}]: "
        f"{type_name(data_type)} fields take one of {suited}"
    )


def _unsuited(name: str, data_type: DataType) -> str:
    """Return the reason why a kind does not index fields of the type."""
    field_type = type_name(data_type)
    match name:
        case "STL_SORT":
            return f"STL_SORT are only supported on numeric, varchar or timestamptz field, got {field_type}"
        case "Trie" | "TRIE" | "trie":
            return "TRIE are only supported on varchar field"
        case "BITMAP":
            return "bitmap index are only supported on bool, int, string and array field"
        case "NGRAM":
            return "ngram index can only be created on VARCHAR or JSON field: invalid parameter"
        case "RTREE":
            return f"RTREE index can only be built on geometry field, got {field_type}"
        case "HYBRID":
            return "hybrid index are only supported on bool, int, float, string and array field"
        case "INVERTED":
            return f"INVERTED are not supported on {field_type} field"
    return f"data type {field_type} can't build with this index {name}"


def _json_params(sent: Mapping[str, object], kind: IndexKind) -> dict[str, Any]:
    grams = kind.name == "NGRAM"
    if sent.get(JSON_CAST_TYPE) in (None, ""):
        if grams:
            raise missing("JSON field with ngram index must specify json_cast_type")
        raise missing("json index must specify cast type", JSON_CAST_TYPE)
    cast = _cast_type(sent[JSON_CAST_TYPE])
    if grams and cast != "VARCHAR":
        raise invalid(
            f"JSON field with ngram index only supports VARCHAR cast type, got: {cast}: invalid parameter"
        )
    if cast not in CAST_TYPES:
        raise invalid(
            f"json_cast_type {sent[JSON_CAST_TYPE]} is not supported: invalid parameter: use one of "
            f"{', '.join(CAST_TYPES)}"
        )
    if kind.name == "BITMAP" and cast not in _BITMAP_CAST_TYPES:
        raise invalid(f"json_cast_type {cast} is not supported for BITMAP index: invalid parameter")
    params: dict[str, Any] = {JSON_CAST_TYPE: cast}
    function = str(sent.get(JSON_CAST_FUNCTION) or "").strip().upper()
    if function:
        if function != "STRING_TO_DOUBLE":
            raise invalid(f"json_cast_function {function} is not supported: invalid parameter")
        if cast != "DOUBLE":
            raise invalid(
                f"json_cast_function {function} is not supported for json_cast_type {cast}: invalid parameter"
            )
        params[JSON_CAST_FUNCTION] = function
    if sent.get(JSON_PATH) in (None, ""):
        raise missing("json index must specify json path", JSON_PATH)
    return {JSON_PATH: str(sent[JSON_PATH]), **params}


def _cast_type(sent: object) -> str:
    """The name of a type; some clients send the number that stands for it on the wire."""
    text = str(sent).strip().upper()
    numbered = {str(kind.value): kind for kind in DATA_TYPES}
    return _CAST_OF_FAMILY.get(family_of(numbered[text]), text) if text in numbered else text


def check_sorted_cast(spec: IndexSpec) -> None:
    """Check the type of the values of STL_SORT on a JSON field. Raises `InvalidParameter`."""
    cast = spec.params[JSON_CAST_TYPE]
    if cast not in _SORTED_CAST_TYPES:
        raise invalid(f"json_cast_type {cast} is not supported for STL_SORT index: invalid parameter")


def check_field(spec: IndexSpec, field: FieldSchema) -> None:
    """Check what depends on more of the field than its type, and what new indexes may not be of, though ones
    of earlier releases may. Raises `InvalidParameter`."""
    if field.kind.is_long_text:
        raise InvalidParameter(
            f"TEXT field does not support user-created scalar index: field {field.name}; text_match needs "
            "none, and a VarChar field takes one"
        )
    if spec.kind.name == "BITMAP":
        if field.is_primary:
            raise invalid("create bitmap index on primary key not supported")
        if field.data_type is DataType.ARRAY and family_of(field.element_type) is Family.FLOATING:
            raise invalid("bitmap index are only supported on bool, int, string for array field")
    if field.data_type is DataType.JSON and JSON_PATH in spec.params:
        json_path_of(spec, field)


def json_path_of(spec: IndexSpec, field: FieldSchema) -> JsonPath | None:
    """Return where the indexed values are in a JSON field's documents; None for other fields.

    ``my_json["a"][0]`` is the path ``("a", 0)`` of the field ``my_json``, and the path ``("my_json", "a",
    0)`` of the field of dynamic values. Raises `InvalidParameter` for a path of another field, or none.
    """
    if JSON_PATH not in spec.params:
        return None
    text = str(spec.params[JSON_PATH]).strip()
    parsed = parse_json_path(text, plain_key)  # what it was built over: earlier releases read escapes so
    if parsed is None:
        raise InvalidParameter(
            f"cannot parse identifier: {text}: {JSON_PATH} is the field and keys, such as "
            f'{field.name}["a"][0]'
        )
    head, steps = parsed
    if len(steps) > FILTER_DEPTH_MAX:
        raise InvalidParameter(
            f"{JSON_PATH} has {len(steps)} keys, more than {FILTER_DEPTH_MAX}: no filter looks that deep"
        )
    if head == field.name:
        return steps
    if not field.is_dynamic:
        raise InvalidParameter(
            f"fieldID not match with field name: {JSON_PATH} {text} is not in the field {field.name}"
        )
    return (head, *steps)
