"""The endpoints of indexes."""

from __future__ import annotations

from typing import Any

from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint, rpc_endpoint
from elanus.proxy.rest.errors import RestError
from elanus.proxy.rest.schemas import pairs_shown
from elanus.proxy.wire.stubs import common_pb2

_INDEX_NOT_FOUND = 700
_OWN_PARAMS = ("index_type", "metric_type")


def create_index(session: Session, body: bodies.OfCollection, index: bodies.IndexBody) -> None:
    """Create an index."""
    session.rpc(
        "CreateIndex",
        body,
        field_name=index.field_name,
        index_name=index.index_name,
        extra_params=index_params(index),
    )


def index_params(index: bodies.IndexBody) -> dict[str, Any]:
    """Return an index's parameters. Those of its kind go into one JSON object, as the clients send them."""
    given = {**index.params, **index.index_config}
    inner = given.pop("params", {})
    params = {name: given.pop(name) for name in _OWN_PARAMS if name in given}
    if index_type := index.index_type or index.index_type_too:
        params["index_type"] = index_type
    if index.metric_type:
        params["metric_type"] = index.metric_type
    of_kind = {**given, **inner} if isinstance(inner, dict) else given
    if of_kind:
        params["params"] = of_kind
    return params


def create(session: Session, body: bodies.CreateIndexes) -> object:
    """Create indexes"""
    for index in body.index_params:
        create_index(session, body, index)
    return {}


def names(session: Session, body: bodies.OfCollection) -> object:
    """List the names of a collection's indexes"""
    try:
        found = session.rpc("DescribeIndex", body)
    except RestError as error:
        if error.code == _INDEX_NOT_FOUND:
            return []
        raise
    return [index.index_name for index in found.index_descriptions]


def _described(found: Any) -> object:
    return [_shown(index) for index in found.index_descriptions]


def _shown(index: Any) -> dict[str, object]:
    params = {pair.key: pair.value for pair in index.params}
    return {
        "failReason": index.index_state_fail_reason,
        "fieldName": index.field_name,
        "indexName": index.index_name,
        "indexState": common_pb2.IndexState.Name(index.state),
        "indexType": params.get("index_type", ""),
        "indexedRows": index.indexed_rows,
        "metricType": params.get("metric_type", ""),
        "params": pairs_shown(index.params),
        "pendingRows": index.pending_index_rows,
        "totalRows": index.total_rows,
    }


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint("indexes/list", bodies.OfCollection, names, "DescribeIndex"),
    rpc_endpoint(
        "indexes/describe",
        bodies.OfIndex,
        "DescribeIndex",
        "Describe an index: its parameters, and how far it is built",
        _described,
    ),
    endpoint("indexes/create", bodies.CreateIndexes, create, "CreateIndex"),
    rpc_endpoint("indexes/drop", bodies.OfIndex, "DropIndex", "Drop an index"),
    rpc_endpoint(
        "indexes/alter_properties",
        bodies.IndexProperties,
        "AlterIndex",
        "Set properties of an index",
        fields=lambda body: {"extra_params": body.properties},
    ),
    rpc_endpoint("indexes/drop_properties", bodies.IndexKeys, "AlterIndex", "Remove properties of an index"),
)
