"""A ``SearchRequest`` to `elanus.proxy.api.Search`: the hot path.

Programs repeat one search with new vectors. So a request is split: the parts that change every time (the
vectors, their number, the guarantee timestamp) are taken out, and the bytes of the rest are the key of a
*template* that was parsed and checked before. A repeated search costs only the split (2 µs) and
`numpy.frombuffer`.

A search iterator of the client is a series of searches by ranges of the score, all as of the moment of the
first. Clients since 2.5 first ask for another kind, in which the server continues from a bound: the answer
holds no token for it, from which they see that there is none, and go on with the first kind. It loses no
row where many have one score, as the other does.

Clients up to 2.2 ask for a moment of the past with the field ``travel_timestamp``; newer ones have no such
field to set, and send it among the index's search parameters.

A template holds while the collection's schema is the very object it was made for: the proxy's cache
replaces that object whenever the collection changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elanus.core.errors import FieldNotFound, InvalidParameter, InvalidTopK
from elanus.core.ids import CollectionID
from elanus.core.limits import (
    QUERY_WINDOW_MAX_ROWS,
    ROUND_DECIMAL_MAX,
    ROUND_DECIMAL_MIN,
    TOP_K_MAX,
)
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.proxy.api import Search
from elanus.proxy.wire.parameters import (
    COLLECTION_ID,
    IGNORE_GROWING,
    ITERATOR,
    expected_collection,
    filter_values,
    ignore_growing,
    integer,
    iterates,
    json_object,
    refuse_unknown,
)
from elanus.proxy.wire.query_vectors import decode_queries
from elanus.proxy.wire.read_consistency import read_consistency
from elanus.proxy.wire.requests import refuse_unknown_fields, to_dict
from elanus.proxy.wire.stubs import Message, common_pb2
from elanus.proxy.wire.unsupported import unsupported

_UNDERSTOOD_FIELDS = frozenset(
    {
        "base",
        "db_name",
        "collection_name",
        "partition_names",
        "dsl",
        "dsl_type",
        "output_fields",
        "search_params",
        "consistency_level",
        "use_default_consistency",
        "expr_template_values",
        "not_return_all_meta",  # asks for less than what this server sends anyway
    }
)
_CHANGING_FIELDS = ("placeholder_group", "nq", "guarantee_timestamp", "travel_timestamp")

_TOP_LEVEL_PARAMS = frozenset(
    {
        "anns_field",
        "topk",
        "params",
        "metric_type",
        "round_decimal",
        "offset",
        IGNORE_GROWING,
        ITERATOR,
        COLLECTION_ID,
        "search_iter_v2",
        "search_iter_batch_size",
    }
)
TRAVEL_TIMESTAMP = "travel_timestamp"
_RANGE_PARAMS = ("radius", "range_filter")
_JSON_KINDS = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}
_NO_GROUPING = "group the hits in the client"
INSTEAD = {
    "group_by_field": _NO_GROUPING,
    "group_by_fields": _NO_GROUPING,
    "group_size": _NO_GROUPING,
    "strict_group_size": _NO_GROUPING,
    "order_by_fields": "order the hits in the client",
    "page_retain_order": "leave it out",
    "hints": "leave it out; the server chooses how to filter",
    "search_iter_id": "begin a new iterator",
    "search_iter_last_bound": "begin a new iterator",
}
"""What to use instead of search parameters that this release lacks."""


@dataclass(frozen=True, slots=True)
class SearchTemplate:
    """A search without its vectors. ``schema`` is the one it was checked against."""

    schema: CollectionSchema
    vector_field: FieldSchema
    partitions: tuple[str, ...]
    limit: int
    offset: int
    filter: str
    filter_values: Mapping[str, object]
    metric_type: str
    params: Mapping[str, float | int | str | bool]
    output_fields: tuple[str, ...]
    round_decimal: int
    ignore_growing: bool
    iterates: bool
    travel_ts: int
    collection_id: CollectionID | None


class TemplateCache:
    """Search templates by (database, request bytes). Used by all gRPC threads without a lock.

    Single dict operations are atomic. When full it is emptied: refilling costs less than keeping order.
    """

    def __init__(self, max_templates: int = 1024) -> None:
        self._max_templates = max_templates
        self._templates: dict[tuple[str, bytes], SearchTemplate] = {}

    def get(self, key: tuple[str, bytes], schema: CollectionSchema) -> SearchTemplate | None:
        """The template of these bytes, if it was made for this very schema object."""
        template = self._templates.get(key)
        return template if template is not None and template.schema is schema else None

    def put(self, key: tuple[str, bytes], template: SearchTemplate) -> None:
        if len(self._templates) >= self._max_templates:
            self._templates.clear()
        self._templates[key] = template


def decode_search(
    request: Message,
    database: str,
    schema: CollectionSchema,
    cache: TemplateCache,
    timeout_s: float | None = None,
) -> Search:
    """The search that a request asks for. The request message is used up.

    Raises `InvalidParameter` (and `InvalidTopK`, `InvalidDimension`), `FieldNotFound` or `NotSupported`.
    """
    placeholders = request.placeholder_group
    nq = request.nq
    guarantee_ts = request.guarantee_timestamp
    travel_ts = request.travel_timestamp
    for field in _CHANGING_FIELDS:
        request.ClearField(field)
    key = (database, request.SerializeToString())
    template = cache.get(key, schema)
    if template is None:
        template = parse_template(request, schema)
        cache.put(key, template)
    return Search(
        database=database,
        collection=request.collection_name,
        partitions=template.partitions,
        vector_field=template.vector_field.name,
        queries=decode_queries(placeholders, nq, template.vector_field),
        limit=template.limit,
        offset=template.offset,
        filter=template.filter,
        metric_type=template.metric_type,
        params=template.params,
        output_fields=template.output_fields,
        round_decimal=template.round_decimal,
        consistency=read_consistency(
            request.use_default_consistency,
            request.consistency_level,
            guarantee_ts,
            pinned=template.iterates,
            travel_ts=travel_ts or template.travel_ts,
        ),
        filter_values=template.filter_values,
        ignore_growing=template.ignore_growing,
        collection_id=template.collection_id,
        timeout_s=timeout_s,
    )


def parse_template(request: Message, schema: CollectionSchema) -> SearchTemplate:
    """Everything of a request that does not change from call to call, parsed and checked."""
    refuse_unknown_fields(request, _UNDERSTOOD_FIELDS, "a search")
    if request.dsl and request.dsl_type != common_pb2.BoolExprV1:
        raise unsupported("a search in the JSON query language (dsl_type Dsl)", "use a boolean expression")
    params = to_dict(request.search_params)
    refuse_unknown(params, _TOP_LEVEL_PARAMS, INSTEAD)
    index_params, metric_type = _index_params(params)
    travel_ts = _travel_timestamp(index_params.pop(TRAVEL_TIMESTAMP, 0))
    limit, offset = _window(params)
    return SearchTemplate(
        schema=schema,
        vector_field=_vector_field(schema, params.get("anns_field", "")),
        partitions=tuple(request.partition_names),
        limit=limit,
        offset=offset,
        filter=request.dsl,
        filter_values=filter_values(request.expr_template_values),
        metric_type=metric_type,
        params=index_params,
        output_fields=tuple(request.output_fields),
        round_decimal=_round_decimal(params),
        ignore_growing=ignore_growing(params),
        iterates=iterates(params),
        travel_ts=travel_ts,
        collection_id=expected_collection(params),
    )


def _vector_field(schema: CollectionSchema, name: str) -> FieldSchema:
    if not name:
        if len(schema.vector_fields) > 1:
            names = ", ".join(field.name for field in schema.vector_fields)
            raise InvalidParameter(
                f"multiple anns_fields exist, please specify a anns_field in search_params: {names}"
            )
        return schema.vector_fields[0]
    field = schema.by_name.get(name)
    if field is None:
        raise FieldNotFound(
            f"failed to create query plan: failed to get field schema by name: fieldName({name}) not found"
        )
    if not field.data_type.is_vector:
        raise InvalidParameter(
            f"failed to create query plan: field ({name}) to search is not of vector data type"
        )
    return field


def _window(params: Mapping[str, str]) -> tuple[int, int]:
    """Limit and offset, of which the sum is bounded too."""
    limit = integer(params, "topk")
    if limit is None:
        raise InvalidTopK("topk not found in search_params")
    offset = integer(params, "offset") or 0
    for name, value, low in (("topk", limit, 1), ("offset", offset, 0)):
        if not low <= value <= TOP_K_MAX:
            raise InvalidTopK(
                f"{name} [{value}] is invalid, it should be in range [1, {TOP_K_MAX}], but got {value}"
            )
    if limit + offset > QUERY_WINDOW_MAX_ROWS:
        both = limit + offset
        raise InvalidTopK(
            f"offset+topk [{both}] is invalid, "
            f"it should be in range [1, {QUERY_WINDOW_MAX_ROWS}], but got {both}"
        )
    return limit, offset


def _round_decimal(params: Mapping[str, str]) -> int:
    text = params.get("round_decimal", str(ROUND_DECIMAL_MIN))
    allowed = {str(digits) for digits in range(ROUND_DECIMAL_MIN, ROUND_DECIMAL_MAX + 1)}
    if text not in allowed:
        raise InvalidParameter(
            f"round_decimal [{text}] is invalid, should be -1 or an integer in range [0, {ROUND_DECIMAL_MAX}]"
        )
    return int(text)


def _index_params(params: Mapping[str, str]) -> tuple[dict[str, float | int | str | bool], str]:
    """The index's own parameters, and the metric.

    Clients since 2.5 repeat the request's parameters among the index's: the repetition must agree.
    """
    inner = json_object(params.get("params", ""), "params")
    metric_type = params.get("metric_type") or str(inner.get("metric_type", ""))
    for name in _TOP_LEVEL_PARAMS & inner.keys():
        repeated = inner.pop(name)
        if name != "metric_type" or repeated != metric_type:
            _check_repetition(name, repeated, params)
    for name, value in inner.items():
        if name in INSTEAD:
            raise unsupported(f"the search parameter {name}", INSTEAD[name])
        if name in _RANGE_PARAMS and (isinstance(value, bool) or not isinstance(value, int | float)):
            kind = _JSON_KINDS[type(value)]
            raise InvalidParameter(f"type must be number, but is {kind}: search parameter {name} is {value}")
        if not isinstance(value, bool | int | float | str):
            raise InvalidParameter(f"search parameter {name} must be a number, string or bool, got {value}")
    return inner, metric_type


def _travel_timestamp(value: float | int | str | bool) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidParameter(f"{TRAVEL_TIMESTAMP} [{value}] is invalid, should be a hybrid timestamp")
    return value


def _check_repetition(name: str, repeated: object, params: Mapping[str, str]) -> None:
    if str(repeated) != params.get(name):
        raise InvalidParameter(
            f"ambiguous parameter: {name} is {params.get(name)} in the request and {repeated} in params"
        )
