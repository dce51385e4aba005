"""Endpoints that the pages need in addition to those of the REST API."""

from __future__ import annotations

from elanus.console.sample import Sample, projection
from elanus.core.errors import ElanusError
from elanus.core.past import moment_of
from elanus.core.privileges import ANY, PUBLIC
from elanus.proxy.rest import operations
from elanus.proxy.rest.bodies import Empty, OfCollection
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint
from elanus.proxy.rest.errors import reported
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_STATES = [
    common_pb2.SegmentState.Value(name) for name in ("Growing", "Sealed", "Flushing", "Flushed", "Importing")
]


def segments(session: Session, body: OfCollection) -> object:
    """The segments of a collection that exist, and where they are loaded

    A segment is a list, for thousands of them are sent: id, state, rows, partition id, vchannel, ids of
    nodes, bytes of memory, index.
    """
    stored = session.rpc("GetPersistentSegmentInfo", states=_STATES, **_in(body))
    loaded = {one.segmentID: one for one in session.rpc("GetQuerySegmentInfo", **_in(body)).infos}
    found = []
    for one in stored.infos:
        served = loaded.pop(one.segmentID, None)
        nodes = [str(node) for node in served.nodeIds] if served is not None else []
        size_bytes, index = (served.mem_size, served.index_name) if served is not None else (0, "")
        state = common_pb2.SegmentState.Name(one.state)
        key, partition = str(one.segmentID), str(one.partitionID)
        rows = max(one.num_rows, served.num_rows if served is not None else 0)  # nodes see growing rows first
        found.append([key, state, rows, partition, one.insert_channel, nodes, size_bytes, index])
    for one in loaded.values():  # began after the first answer
        state = common_pb2.SegmentState.Name(one.state)
        nodes = [str(node) for node in one.nodeIds]
        key, partition = str(one.segmentID), str(one.partitionID)
        found.append([key, state, one.num_rows, partition, "", nodes, one.mem_size, one.index_name])
    return found


def vchannels(session: Session, body: OfCollection) -> object:
    """The vchannels of a collection, each with its pchannel"""
    found = session.rpc("DescribeCollection", body)
    pairs = zip(found.virtual_channel_names, found.physical_channel_names, strict=True)
    return [{"vchannel": vchannel, "pchannel": pchannel} for vchannel, pchannel in pairs]


def users(session: Session, body: Empty) -> object:
    """The users with their roles, and the roles with their privileges

    One request, whatever their number: ``grants`` are lists of role, privilege, object type, database and
    object.
    """
    found = session.rpc("SelectUser", include_role_info=True).results
    names = [result.role.name for result in session.rpc("SelectRole").results]
    roles = list(dict.fromkeys([*names, PUBLIC]))  # everybody has that one
    grants = []
    for role in roles:
        entity = milvus_pb2.GrantEntity(role=milvus_pb2.RoleEntity(name=role), db_name=ANY)
        grants += [
            [role, grant.grantor.privilege.name, grant.object.name, grant.db_name, grant.object_name]
            for grant in session.rpc("SelectGrant", entity=entity).entities
        ]
    named = [{"name": one.user.name, "roles": [role.name for role in one.roles]} for one in found]
    return {"users": named, "roles": roles, "grants": grants}


class Check(OfCollection, kw_only=True):
    """``asOf``: a moment as `elanus.core.past.moment_of` reads it, "" for the present."""

    filter: str = ""
    as_of: str = ""


def check(session: Session, body: Check) -> object:
    """How many rows match a filter at a moment; the error of a filter or a moment that is not valid

    ``timestamp``: the moment as searches take it, a text; "0" for the present.
    """
    try:
        moment = moment_of(body.as_of)
    except ElanusError as error:
        raise reported(error) from None
    found = session.rpc("Query", body, expr=body.filter, travel_timestamp=moment, output_fields=["count(*)"])
    counts = [count for field in found.fields_data for count in field.scalars.long_data.data]
    return {"rows": sum(counts), "timestamp": str(int(moment))}


def _in(body: OfCollection) -> dict[str, str]:
    return {"dbName": body.db_name, "collectionName": body.collection_name}


_ENDPOINTS = (
    endpoint("segments", OfCollection, segments, "GetPersistentSegmentInfo", "GetQuerySegmentInfo"),
    endpoint("vchannels", OfCollection, vchannels, "DescribeCollection"),
    endpoint("users", Empty, users, "SelectUser", "SelectRole", "SelectGrant"),
    endpoint("check", Check, check, "Query"),
    endpoint("projection", Sample, projection, operations.QUERY),
)
VIEWS: dict[str, Endpoint] = {one.path: one for one in _ENDPOINTS}
"""By their paths below ``/ui/api/view/``."""
