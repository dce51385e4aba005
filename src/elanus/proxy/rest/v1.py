"""The first generation of the RESTful API, below ``/v1/vector/``: bodies of its own, the same functions.

Success is the code 200 there. Reads of definitions are GET requests, whose parameters are in the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elanus.proxy.rest import bodies, collections, entities, entity_bodies
from elanus.proxy.rest.bodies import InDatabase, OfCollection
from elanus.proxy.rest.endpoint import Endpoint, Session
from elanus.proxy.rest.errors import BadFormat, MissingField

PREFIX = "/v1/vector/"
SUCCESS = 200
READS = frozenset({"collections", "collections/describe"})
"""The paths of GET requests."""


class Create(OfCollection, kw_only=True):
    dimension: int
    metric_type: str = "L2"
    primary_field: str = ""
    vector_field: str = ""
    description: str = ""


class Search(OfCollection, kw_only=True):
    """``vector``: one query vector."""

    vector: list[float]
    filter: str = ""
    limit: int = entity_bodies.LIMIT_DEFAULT
    offset: int = 0
    output_fields: list[str] = []
    params: dict[str, Any] = {}


class Delete(OfCollection, kw_only=True):
    """``id``: a key, or a list of them; or a ``filter``."""

    id: Any = None
    filter: str = ""


def names(session: Session, body: InDatabase) -> object:
    """List the names of the collections"""
    return list(session.rpc("ShowCollections", body).collection_names)


def create(session: Session, body: Create) -> object:
    """Create a collection with a key, a vector, dynamic fields and an index, and load it"""
    return collections.create(
        session,
        bodies.CreateCollection(
            db_name=body.db_name,
            collection_name=body.collection_name,
            dimension=body.dimension,
            metric_type=body.metric_type,
            primary_field_name=body.primary_field,
            vector_field_name=body.vector_field,
            description=body.description,
            auto_id=True,
        ),
    )


def drop(session: Session, body: OfCollection) -> object:
    """Drop a collection"""
    session.rpc("DropCollection", body)
    return {}


def search(session: Session, body: Search) -> object:
    """The rows with the nearest vectors"""
    return entities.search(
        session,
        entity_bodies.Search(
            db_name=body.db_name,
            collection_name=body.collection_name,
            data=[body.vector],
            filter=body.filter,
            limit=body.limit,
            offset=body.offset,
            output_fields=body.output_fields,
            params=body.params,
        ),
    ).data


def delete(session: Session, body: Delete) -> object:
    """Delete rows by their keys, or those that a filter matches"""
    values: Mapping[str, Any] = {}
    text = body.filter
    if body.id is not None:
        if text:
            raise BadFormat("id and filter are both given: send one of them")
        described = session.rpc("DescribeCollection", body)
        key = next(field.name for field in described.schema.fields if field.is_primary_key)
        text, values = f"{key} in {{ids}}", {"ids": body.id if isinstance(body.id, list) else [body.id]}
    if not text:
        raise MissingField(type(body).__name__, "id")
    entities.delete(
        session,
        entity_bodies.Delete(
            db_name=body.db_name,
            collection_name=body.collection_name,
            filter=text,
            expr_params=dict(values),
        ),
    )
    return {}


def _rows(path: str, body: type[bodies.Body], handle: Any) -> Endpoint:
    """An endpoint of the second generation that answers with its ``data`` only."""
    return Endpoint(path, body, lambda session, sent: handle(session, sent).data, (), handle.__doc__)


TABLE: Mapping[str, Endpoint] = {
    endpoint.path: endpoint
    for endpoint in (
        Endpoint("collections", InDatabase, names, ("ShowCollections",), names.__doc__ or ""),
        Endpoint("collections/describe", OfCollection, collections.describe, (), "Describe a collection"),
        Endpoint("collections/create", Create, create, ("CreateCollection",), create.__doc__ or ""),
        Endpoint("collections/drop", OfCollection, drop, ("DropCollection",), drop.__doc__ or ""),
        _rows("insert", entity_bodies.Rows, entities.insert),
        _rows("upsert", entity_bodies.Rows, entities.upsert),
        _rows("query", entity_bodies.Query, entities.query),
        _rows("get", entity_bodies.Get, entities.get),
        Endpoint("search", Search, search, (), search.__doc__ or ""),
        Endpoint("delete", Delete, delete, (), delete.__doc__ or ""),
    )
}
