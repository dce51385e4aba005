"""The endpoints of operating a server: resource groups, segments, analyzers, file resources."""

from __future__ import annotations

from typing import Any

from elanus.core.errors import InvalidParameter
from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint, rpc_endpoint
from elanus.proxy.rest.errors import reported
from elanus.proxy.wire.by_name import as_json, from_json, parameter_text
from elanus.proxy.wire.stubs import rg_pb2
from elanus.proxy.wire.unsupported import unsupported


def create_resource_group(session: Session, body: bodies.NewResourceGroup) -> object:
    """Create a resource group"""
    config = {"config": _config(body.config)} if body.config else {}
    session.rpc("CreateResourceGroup", resource_group=body.name, **config)
    return {}


def alter_resource_groups(session: Session, body: bodies.AlterResourceGroups) -> object:
    """Change the configurations of resource groups"""
    configs = {name: _config(config) for name, config in body.resource_groups.items()}
    session.rpc("UpdateResourceGroups", resource_groups=configs)
    return {}


def segments(session: Session, body: bodies.Segments) -> object:
    """Describe flushed segments by their ids"""
    collection = session.rpc("DescribeCollection", db_name=body.db_name, collectionID=body.collection_id)
    # Of an id, the database may be another than the request's.
    found = session.rpc(
        "GetPersistentSegmentInfo",
        dbName=collection.db_name or body.db_name,
        collectionName=collection.collection_name,
    )
    wanted = set(body.segment_ids)
    return {
        "segmentInfos": [
            as_json(segment) for segment in found.infos if not wanted or segment.segmentID in wanted
        ]
    }


def limits(session: Session, body: bodies.Empty) -> object:
    """The limits in effect and how much of them is used"""
    raise reported(unsupported("quotacenter/describe", "read the metrics of the server's metrics port"))


def run_analyzer(session: Session, body: bodies.Analyze) -> object:
    """Split texts into tokens as an analyzer does"""
    texts = [body.text] if isinstance(body.text, str) else body.text
    params = {} if body.analyzer_params is None else {"analyzer_params": parameter_text(body.analyzer_params)}
    found = session.rpc("RunAnalyzer", body, placeholder=[text.encode() for text in texts], **params)
    return [[_token(token, body) for token in result.tokens] for result in found.results]


def _token(token: Any, body: bodies.Analyze) -> object:
    if not body.with_detail and not body.with_hash:
        return token.token
    shown = as_json(token)
    if not body.with_hash:
        shown.pop("hash")
    return shown


def _config(sent: dict[str, Any]) -> rg_pb2.ResourceGroupConfig:
    """Raises `RestError` for a name or value that a configuration does not have."""
    try:
        return from_json(sent, rg_pb2.ResourceGroupConfig())
    except InvalidParameter as error:
        raise reported(error) from None


def _group(found: Any) -> object:
    return as_json(found.resource_group)


def _name(body: bodies.OfResourceGroup) -> dict[str, Any]:
    return {"resource_group": body.name}


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint("resource_groups/create", bodies.NewResourceGroup, create_resource_group, "CreateResourceGroup"),
    rpc_endpoint(
        "resource_groups/drop",
        bodies.OfResourceGroup,
        "DropResourceGroup",
        "Drop a resource group",
        fields=_name,
    ),
    endpoint(
        "resource_groups/alter", bodies.AlterResourceGroups, alter_resource_groups, "UpdateResourceGroups"
    ),
    rpc_endpoint(
        "resource_groups/describe",
        bodies.OfResourceGroup,
        "DescribeResourceGroup",
        "Describe a resource group: its nodes and what they have loaded",
        _group,
        _name,
    ),
    rpc_endpoint(
        "resource_groups/list",
        bodies.Empty,
        "ListResourceGroups",
        "List the names of the resource groups",
        lambda found: list(found.resource_groups),
    ),
    rpc_endpoint(
        "resource_groups/transfer_replica",
        bodies.TransferReplica,
        "TransferReplica",
        "Move replicas of a collection to another resource group",
    ),
    rpc_endpoint("file_resources/add", bodies.FileResource, "AddFileResource", "Add a file resource"),
    rpc_endpoint(
        "file_resources/remove", bodies.FileResource, "RemoveFileResource", "Remove a file resource"
    ),
    rpc_endpoint(
        "file_resources/list",
        bodies.Empty,
        "ListFileResources",
        "List the file resources",
        lambda found: [as_json(resource) for resource in found.resources],
    ),
    endpoint(
        "segments/describe", bodies.Segments, segments, "DescribeCollection", "GetPersistentSegmentInfo"
    ),
    endpoint("quotacenter/describe", bodies.Empty, limits),
    endpoint("common/run_analyzer", bodies.Analyze, run_analyzer, "RunAnalyzer"),
)
