"""The parameters by which a search requests groups of hits instead of hits."""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping, check_group_size, grouping_fields
from elanus.core.schema import CollectionSchema
from elanus.proxy.wire.parameters import boolean
from elanus.proxy.wire.unsupported import unsupported

GROUPING_FIELD = "group_by_field"
GROUPING_FIELDS = "group_by_fields"
GROUPING_SIZE = "group_size"
_STRICT = "strict_group_size"
_INSIDE_JSON = ("json_path", "json_type", "strict_cast")
GROUPING_PARAMS = frozenset({GROUPING_FIELD, GROUPING_FIELDS, GROUPING_SIZE, _STRICT, *_INSIDE_JSON})
"""The names of these parameters. Without a field to group by, the others have no effect."""


def grouping(params: Mapping[str, str], schema: CollectionSchema) -> Grouping | None:
    """Return the requested grouping; ``None`` if the search is not grouped.

    Raises `FieldNotFound`, `InvalidParameter`, `NotSupported`.
    """
    names = _names(params)
    if not names:
        return None
    for name in _INSIDE_JSON:
        if params.get(name):
            raise unsupported(f"the search parameter {name}", "give the value a field of its own")
    grouping_fields(schema, names)
    return Grouping(names, _size(params), _is_strict(params))


def _names(params: Mapping[str, str]) -> tuple[str, ...]:
    """The single field of older clients has precedence over the list of newer ones, as in the reference."""
    single = params.get(GROUPING_FIELD, "").strip()
    if single:
        return (single,)
    names = (name.strip() for name in params.get(GROUPING_FIELDS, "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def _size(params: Mapping[str, str]) -> int:
    text = params.get(GROUPING_SIZE)
    if text is None:
        return 1
    try:
        return check_group_size(int(text))
    except ValueError:
        raise InvalidParameter(f"failed to parse input group size:{text}") from None


def _is_strict(params: Mapping[str, str]) -> bool:
    try:
        return boolean(params, _STRICT)
    except InvalidParameter:
        return False  # as in the reference
