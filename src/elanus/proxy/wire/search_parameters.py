"""The parameters of a search, from wherever each client generation puts them.

A search carries key-value pairs, one of which, ``params``, is a JSON object. The reference reads the
request's own parameters (``topk``, ``offset``, ...) from the pairs and the index's (``ef``, ``radius``, ...)
from the object. Clients since 2.5 accept all of them in one layer, and send many of them in both places;
others (the Node.js client) send the index's parameters as pairs, too. So both places are equivalent here:

* A parameter that is in one place is used, wherever it is.
* A parameter in both places with one meaning (``"8"`` and ``8``) is used. A default gives way: the client
  fills in ``round_decimal`` -1 and means the 3 that its user put into ``params``.
* A parameter with two meanings is refused, and the error shows both values: the reference would use one and
  drop the other.
* Features that this release lacks are refused, and the error says what to do instead.
* A name that no index knows has no effect, as in the reference, and is logged once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.metrics import ITERATOR_PAGE, TRUTH
from elanus.core.moments import TIME_FIELDS, TIMEZONE
from elanus.core.schema import Scalar
from elanus.core.target_recall import MISS_FACTOR
from elanus.index import note_ignored
from elanus.index.kinds import search_param_names
from elanus.proxy.wire.grouping import GROUPING_PARAMS
from elanus.proxy.wire.iterator_page import ITERATOR_PARAMS
from elanus.proxy.wire.parameters import COLLECTION_ID, IGNORE_GROWING, ITERATOR, json_object

TRAVEL_TIMESTAMP = "travel_timestamp"
ORDER = "order_by_fields"
ANALYZER_NAME = "analyzer_name"
RECALL = "enable_recall_calculation"
_PARAMS = "params"
_NO_DEFAULT = object()
_REQUEST_PARAMS: Mapping[str, object] = {
    "topk": _NO_DEFAULT,
    "anns_field": "",
    "metric_type": "",
    "round_decimal": -1,
    "offset": 0,
    IGNORE_GROWING: False,
    ITERATOR: False,
    COLLECTION_ID: _NO_DEFAULT,
    ORDER: "",
    TIMEZONE: "",
    TIME_FIELDS: "",
    ANALYZER_NAME: "",
    RECALL: False,
    **dict.fromkeys(GROUPING_PARAMS, ""),
    **dict.fromkeys(ITERATOR_PARAMS, _NO_DEFAULT),
}
"""The request's own parameters, and the values that are equivalent to leaving them out."""

_HINTS = frozenset({"", "iterative_filter", "disable"})
_RANGE_PARAMS = ("radius", "range_filter")
_JSON_KINDS = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
_OF_THE_PROXY = {ITERATOR_PAGE, MISS_FACTOR, TRUTH}
"""Search parameters of indexes that only the proxy sets."""
_INDEX_PARAMS = (search_param_names() - _OF_THE_PROXY) | {TRAVEL_TIMESTAMP}
_KIND = "search"


def split_search_params(pairs: Mapping[str, str], filter_: str) -> tuple[dict[str, str], dict[str, Scalar]]:
    """Return the request's own parameters as text, and the index's as JSON values.

    Raises `InvalidParameter` for two meanings of one parameter, and for unusable values; `NotSupported` for
    features that this release lacks.
    """
    inner = json_object(pairs.get(_PARAMS, ""), _PARAMS)
    for places in (pairs, inner):
        _check_hints(places)
        _check_filter(places, filter_)
    request = {
        name: text
        for name, default in _REQUEST_PARAMS.items()
        if (text := _one_meaning(name, default, pairs, inner)) is not None
    }
    index: dict[str, Scalar] = {}
    ignored: list[str] = []
    for name in [*inner, *(name for name in pairs if name not in inner)]:
        if name == _PARAMS or name in _REQUEST_PARAMS or name == "hints":
            continue
        if name in _INDEX_PARAMS:
            index[name] = _index_value(name, pairs, inner)
        else:
            ignored.append(name)
    note_ignored(_KIND, ignored)
    return request, index


def _check_hints(places: Mapping[str, object]) -> None:
    hints = places.get("hints")
    if hints is not None and str(hints) not in _HINTS:
        raise NotSupported(f"hints: {hints} not supported: use iterative_filter, or leave it out")


def _check_filter(places: Mapping[str, object], filter_: str) -> None:
    """Refuse a filter among the parameters: the reference ignores it, and dropping it changes the answer."""
    stray = places.get("expr")
    if stray not in (None, "", filter_):
        raise _ambiguous("expr", filter_, stray)


def _one_meaning(
    name: str, default: object, pairs: Mapping[str, str], inner: Mapping[str, object]
) -> str | None:
    """Return the text of a request's parameter; ``None`` if it is in neither place."""
    outside, inside = pairs.get(name), inner.get(name)
    if inside is None or _same(inside, default):
        return outside if outside is not None else (None if inside is None else _text(name, inside))
    if outside is None or _same(outside, default) or _same(outside, inside):
        return _text(name, inside)
    raise _ambiguous(name, outside, inside)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidParameter(f"search parameter {name} must be a number, string or bool, got {value}")


def _index_value(name: str, pairs: Mapping[str, str], inner: Mapping[str, Any]) -> Scalar:
    if name not in inner:
        value = _from_text(pairs[name])
    else:
        value = inner[name]
        if name in pairs and not _same(value, pairs[name]):
            raise _ambiguous(name, pairs[name], value)
    if name in _RANGE_PARAMS and (isinstance(value, bool) or not isinstance(value, int | float)):
        kind = _JSON_KINDS[type(value)]
        raise InvalidParameter(f"type must be number, but is {kind}: search parameter {name} is {value}")
    if not isinstance(value, bool | int | float | str):
        raise InvalidParameter(f"search parameter {name} must be a number, string or bool, got {value}")
    return value


def _from_text(text: str) -> object:
    """Parse a pair's text as JSON; other text is a string."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
    return text if value is None else value


def _same(one: object, other: object) -> bool:
    """Whether two values mean the same, each as JSON or as text: 8, 8.0 and "8"; true and "True"."""
    return _normal(one) == _normal(other)


def _normal(value: object) -> object:
    if isinstance(value, str):
        text = value.strip()
        value = _from_text(text.lower() if text.lower() in ("true", "false") else text)
    if isinstance(value, bool):
        return str(value)  # not equal to 1
    return value


def _ambiguous(name: str, outside: object, inside: object) -> InvalidParameter:
    return InvalidParameter(
        f"ambiguous parameter: {name} is {outside or 'empty'} in the request and {inside} in params: send one"
    )
