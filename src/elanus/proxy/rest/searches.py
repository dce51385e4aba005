"""The bodies of reads to the request messages that `elanus.proxy.wire` understands.

Parameters, rankers, groups and placeholders of filters are defined there, once for all clients. Only query
vectors are converted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter
from elanus.core.requests import search_field
from elanus.core.rows import check_queries
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.proxy.rest import entity_bodies as bodies
from elanus.proxy.rest.aggregations import aggregation_message
from elanus.proxy.rest.bodies import FunctionBody
from elanus.proxy.rest.chains import chain_messages
from elanus.proxy.rest.rows import keys, matrix, sparse_row
from elanus.proxy.role.outputs import asks_for_count
from elanus.proxy.wire.by_name import parameter_text
from elanus.proxy.wire.codecs import VECTOR_CODECS
from elanus.proxy.wire.filter_values import template_values
from elanus.proxy.wire.hybrid_request import NO_AGGREGATION
from elanus.proxy.wire.search_parameters import ORDER, TRAVEL_TIMESTAMP
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, schema_pb2

_TEXT_PLACEHOLDER = common_pb2.PlaceholderType.Value("VarChar")
_RENAMED = {
    "metricType": "metric_type",
    "ignoreGrowing": "ignore_growing",
    "roundDecimal": "round_decimal",
    "groupByField": "group_by_field",
    "groupSize": "group_size",
    "strictGroupSize": "strict_group_size",
    "rangeFilter": "range_filter",
}


def query_request(body: bodies.Query) -> Any:
    """Return a ``QueryRequest``. A count of all rows has no limit; a limit of 0 is none.

    Raises `InvalidParameter`.
    """
    params: dict[str, object] = {"limit": body.limit, "offset": body.offset}
    if not body.limit:
        del params["limit"]
    if asks_for_count(tuple(body.output_fields)) and not body.group_by_fields:
        params = {}
    if body.order_by_fields:
        params[ORDER] = ",".join(body.order_by_fields)
    if body.group_by_fields:
        params["group_by_fields"] = ",".join(body.group_by_fields)
    request = milvus_pb2.QueryRequest(
        expr=body.filter,
        output_fields=body.output_fields,
        partition_names=body.partition_names,
        query_params=_pairs(params),
        expr_template_values=template_values(body.expr_params),
    )
    return _consistent(request, body.consistency_level)


def get_request(body: bodies.Get) -> Any:
    """Return a ``QueryRequest`` for rows by key; the keys are not part of it."""
    names = [*body.partition_names, *([body.partition_name] if body.partition_name else ())]
    request = milvus_pb2.QueryRequest(output_fields=body.output_fields, partition_names=names)
    return _consistent(request, body.consistency_level)


def search_request(body: bodies.Search, schema: CollectionSchema) -> Any:
    """Return a ``SearchRequest``. Raises `InvalidParameter`, `InvalidDimension`, `FieldNotFound`."""
    request = milvus_pb2.SearchRequest(
        dsl=body.filter,
        dsl_type=common_pb2.BoolExprV1,
        output_fields=body.output_fields,
        partition_names=body.partition_names,
        search_params=_pairs(
            {
                "topk": body.limit,
                "offset": body.offset,
                "anns_field": body.anns_field,
                **_grouping(body),
                **({ORDER: ",".join(body.order_by_fields)} if body.order_by_fields else {}),
                **_search_params(body.search_params, body.params),
            }
        ),
        expr_template_values=template_values(body.expr_params),
    )
    if body.function_score is not None and body.function_score.functions:
        request.function_score.CopyFrom(function_score(body.function_score))
    if body.search_aggregation is not None:
        request.search_aggregation.CopyFrom(aggregation_message(body))
    request.function_chains.extend(chain_messages(body.function_chains))
    if body.ids and body.data:
        raise InvalidParameter("data and ids are both given: send the vectors, or keys of rows with them")
    if body.ids:
        _add_keys(request, schema, body.ids)
    else:
        _add_vectors(request, schema, body.anns_field, body.data)
    return _consistent(request, body.consistency_level)


def hybrid_request(body: bodies.HybridSearch, schema: CollectionSchema) -> Any:
    """Return a ``HybridSearchRequest``. Raises as `search_request` does."""
    rerank = body.rerank or bodies.Rerank()
    if body.search_aggregation or any(search.search_aggregation for search in body.search):
        raise InvalidParameter(NO_AGGREGATION)
    request = milvus_pb2.HybridSearchRequest(
        requests=[_sub_search(search, number, schema) for number, search in enumerate(body.search)],
        output_fields=body.output_fields,
        partition_names=body.partition_names,
        rank_params=_pairs(
            {
                "strategy": rerank.strategy,
                "params": rerank.params,
                "limit": body.limit,
                "offset": body.offset,
                "round_decimal": body.round_decimal,
                **_grouping(body),
            }
        ),
    )
    if body.function_score is not None and body.function_score.functions:
        request.function_score.CopyFrom(function_score(body.function_score))
    request.function_chains.extend(chain_messages(body.function_chains))
    return _consistent(request, body.consistency_level)


def _sub_search(body: bodies.SubSearch, number: int, schema: CollectionSchema) -> Any:
    params: dict[str, object] = {"anns_field": body.anns_field}
    if body.limit:
        params["topk"] = body.limit
    if body.offset:
        params["offset"] = body.offset
    if body.metric_type:
        params["metric_type"] = body.metric_type
    if body.ignore_growing:
        params["ignore_growing"] = True
    if body.grouping_field:
        params["group_by_field"] = body.grouping_field
    request = milvus_pb2.SearchRequest(
        dsl=body.filter,
        dsl_type=common_pb2.BoolExprV1,
        search_params=_pairs({**params, **_search_params(body.search_params, body.param | body.params)}),
        expr_template_values=template_values(body.expr_params),
        function_chains=chain_messages(body.function_chains, f"search[{number}].functionChains"),
    )
    _add_vectors(request, schema, body.anns_field, body.data)
    return request


def _consistent(request: Any, level: str) -> Any:
    """Return the request with a level by name; "" is the collection's. Raises `InvalidParameter`."""
    if level:
        request.consistency_level = int(level_named(level))
    else:
        request.use_default_consistency = True
    return request


def level_named(level: str) -> ConsistencyLevel:
    """Return the level with that name, in any case. Raises `InvalidParameter`."""
    try:
        return ConsistencyLevel[level.upper()]
    except KeyError:
        known = ", ".join(level.name.capitalize() for level in ConsistencyLevel)
        raise InvalidParameter(
            f"consistencyLevel [{level[:100]}] does not exist; levels are {known}"
        ) from None


def function_score(body: bodies.FunctionScore) -> Any:
    """Return a ``FunctionScore`` message. Raises `InvalidParameter`."""
    return schema_pb2.FunctionScore(
        functions=[function_message(function) for function in body.functions], params=_pairs(body.params)
    )


def function_message(body: FunctionBody) -> Any:
    """Return a ``FunctionSchema`` message. Raises `InvalidParameter` for an unknown type."""
    types = {name.lower(): number for name, number in schema_pb2.FunctionType.items()}
    number = types.get(body.type.lower())
    if number is None:
        raise InvalidParameter(
            f"the function type [{body.type[:100]}] of {body.name} does not exist; "
            f"types are {', '.join(schema_pb2.FunctionType.keys())}"
        )
    return schema_pb2.FunctionSchema(
        name=body.name,
        type=number,
        description=body.description,
        input_field_names=body.input_field_names,
        output_field_names=body.output_field_names,
        params=_pairs(body.params),
    )


def _grouping(body: bodies.Search | bodies.HybridSearch) -> dict[str, object]:
    if not body.grouping_field:
        return {}
    params: dict[str, object] = {"group_by_field": body.grouping_field}
    if body.group_size:
        params["group_size"] = body.group_size
    if body.strict_group_size:
        params["strict_group_size"] = True
    return params


def _search_params(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, object]:
    """The parameters of a search. ``inner``: those of the index, as older programs send them."""
    params = {_RENAMED.get(name, name): value for name, value in outer.items()}
    of_index = params.get("params", {})
    if not isinstance(of_index, dict):
        raise InvalidParameter(f"searchParams.params [{str(of_index)[:100]}] is not a JSON object")
    merged = {**inner, **of_index}
    moment = merged.get(TRAVEL_TIMESTAMP)
    if isinstance(moment, str) and moment.isascii() and moment.isdigit():  # as every 64-bit integer may be
        merged[TRAVEL_TIMESTAMP] = int(moment)
    params["params"] = merged
    return params


def _pairs(params: Mapping[str, object]) -> list[Any]:
    return [common_pb2.KeyValuePair(key=name, value=parameter_text(value)) for name, value in params.items()]


def _add_keys(request: Any, schema: CollectionSchema, values: Sequence[Any]) -> None:
    found = keys(schema, values).to_pylist()
    ids = request.ids.str_id if isinstance(found[0], str) else request.ids.int_id
    ids.data.extend(found)
    request.nq = len(found)


def _add_vectors(request: Any, schema: CollectionSchema, name: str, data: Sequence[Any]) -> None:
    """Add the query vectors, or texts, as a ``PlaceholderGroup``."""
    if not data:
        raise InvalidParameter("data is empty: send at least one query vector")
    if all(isinstance(value, int | float) for value in data):
        raise InvalidParameter("data is one vector: send a list of vectors, as in [[0.1, 0.2]]")
    field = search_field(schema, name)
    placeholder = common_pb2.PlaceholderValue(tag="$0")
    if all(isinstance(value, str) for value in data) and (field.is_function_output or _takes_texts(field)):
        placeholder.type = _TEXT_PLACEHOLDER
        placeholder.values.extend([value.encode() for value in data])
    else:
        codec = VECTOR_CODECS[field.searched_type]
        are_lists = field.has_vector_lists and all(_is_list_of_vectors(value) for value in data)
        kind = codec.list_placeholder_type if are_lists else codec.placeholder_type
        assert kind is not None, f"lists of {field.searched_type.name} are no values of a struct array"
        placeholder.type = common_pb2.PlaceholderType.ValueType(kind)
        if are_lists:
            placeholder.values.extend(b"".join(_query_bytes(field, value)) for value in data)
        else:
            placeholder.values.extend(_query_bytes(field, data))
    group = common_pb2.PlaceholderGroup(placeholders=[placeholder])
    request.placeholder_group = group.SerializeToString()
    request.nq = len(data)


def _is_list_of_vectors(value: object) -> bool:
    """Whether a query is a list of vectors, each of them a list of numbers or base64."""
    return isinstance(value, list) and any(isinstance(item, list | str) for item in value)


def _takes_texts(field: FieldSchema) -> bool:
    """Whether a text is a query and not the base64 of a vector: full-text search is over sparse vectors."""
    return not field.vector.has_dim or field.vector.dtype == "float32"


def _query_bytes(field: FieldSchema, data: Sequence[Any]) -> list[bytes]:
    if not field.vector.has_dim:
        return [sparse_row(field, value) for value in data]
    stored = matrix(field, data)
    check_queries(field, stored.reshape(-1))
    return [row.tobytes() for row in stored]


def decoded_ids(value: object) -> list[Any]:
    """Return the keys of a get: one, or a list. Raises `InvalidParameter` for no list of keys."""
    if isinstance(value, str) and value[:1] == "[":
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return [value]
    return value if isinstance(value, list) else [value]
