"""Properties of an index: settings that can be changed without building it again.

``mmap.enabled`` maps the index file instead of reading it into memory, and ``warmup`` says when it is read
then (`elanus.core.warmup`). ``indexoffsetcache.enabled`` has no effect: it concerns a cache of the reference
that does not exist here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from elanus.core.errors import InvalidParameter, InvalidProperty

MMAP_KEY = "mmap.enabled"
PARAMS_KEY = "params"
WARMUP_KEY = "warmup"
WARMUP_POLICIES = ("sync", "disable")
_PROPERTIES = (MMAP_KEY, "indexoffsetcache.enabled", WARMUP_KEY)


def check_properties(properties: Mapping[str, str], delete_keys: Iterable[str]) -> None:
    """Check a change of properties. Raises `InvalidParameter`."""
    delete_keys = tuple(delete_keys)
    if properties and delete_keys:
        raise InvalidParameter(
            "cannot provide both DeleteKeys and ExtraParams: set or drop properties, not both"
        )
    if not properties and not delete_keys:
        raise InvalidParameter(f"no properties to set or drop: name one of {', '.join(_PROPERTIES)}")
    for name in (*properties, *delete_keys):
        if name not in _PROPERTIES:
            raise InvalidParameter(
                f"{name} is not a configable index property: use one of {', '.join(_PROPERTIES)}"
            )
    for name, value in properties.items():
        if name == WARMUP_KEY:
            check_index_warmup(value)
        elif value.lower() not in ("true", "false"):
            raise InvalidProperty(f"invalid {name} value: {value}, expected: true, false")


def check_index_warmup(value: object) -> None:
    """Raises `InvalidParameter`."""
    if value not in WARMUP_POLICIES:
        raise InvalidParameter(
            f"invalid warmup params: invalid warmup policy: {value}, expected: {', '.join(WARMUP_POLICIES)}"
        )


def property_of(params: Mapping[str, str], name: str) -> str | None:
    """Return a property of an index; None if it is not set. It may be in the JSON text of ``params``."""
    inner = json.loads(params.get(PARAMS_KEY) or "{}")
    nested = inner.get(name) if isinstance(inner, dict) else None
    return params.get(name, None if nested is None else str(nested))


def without_properties(params: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that decide how an index is built."""
    return _without(params, _PROPERTIES)


def altered(
    params: Mapping[str, str], properties: Mapping[str, str], delete_keys: Iterable[str]
) -> dict[str, str]:
    """Return an index's parameters after a change of properties."""
    return _without(params, (*properties, *delete_keys)) | dict(properties)


def _without(params: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the parameters without some, which may also stand in the JSON text of ``params``."""
    left = {name: value for name, value in params.items() if name not in names}
    inner = json.loads(left.get(PARAMS_KEY) or "{}")
    if isinstance(inner, dict) and any(name in inner for name in names):
        left[PARAMS_KEY] = json.dumps({name: value for name, value in inner.items() if name not in names})
    return left
