"""The endpoints of clones and of dropped collections, which the reference's API does not have.

They are operations with the permissions of the same calls of `elanus clone` and `elanus undrop`.
"""

from __future__ import annotations

from collections.abc import Iterator

from elanus.api.snapshots import RestoreJob
from elanus.core.past import moment_of
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.snapshots import SnapshotVerbs
from elanus.proxy.calls import Operation
from elanus.proxy.rest.bodies import OfCollection
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint
from elanus.proxy.rest.rest_operation import RestOperation, database_of
from elanus.proxy.wire.connector import Connector

CLONE, UNDROP = "Rest.Clone", "Rest.Undrop"


class Clone(OfCollection, kw_only=True):
    """``asOf``: a moment in the past, as 2026-01-31T12:00:00, or a Milvus timestamp; "": the present."""

    target_collection_name: str
    as_of: str | int = ""


class Undrop(OfCollection, kw_only=True):
    """``collectionName``: the name under which it was dropped. ``targetCollectionName``: another one."""

    target_collection_name: str = ""


def clone_operations(verbs: SnapshotVerbs) -> Iterator[Operation]:
    """Yield the operations of these endpoints."""

    def clone(body: Clone, caller: Caller) -> RestoreJob:
        database = database_of(body, caller)
        moment = moment_of(str(body.as_of))
        return verbs.clone_collection(
            database, body.collection_name, database, body.target_collection_name, moment
        )

    def undrop(body: Undrop, caller: Caller) -> RestoreJob:
        database = database_of(body, caller)
        return verbs.undrop_collection(database, body.collection_name, body.target_collection_name)

    yield RestOperation(CLONE, Connector.clone_collection, clone)
    yield RestOperation(UNDROP, Connector.undrop_collection, undrop)


def clone_collection(session: Session, body: Clone) -> object:
    """Make a collection with the rows of another one, as of a moment; no file is copied"""
    return _shown(session.operation(CLONE, body))


def undrop_collection(session: Session, body: Undrop) -> object:
    """Bring back the collection that was dropped last under a name, while its files exist"""
    return _shown(session.operation(UNDROP, body))


def _shown(job: RestoreJob) -> object:
    return {"jobId": str(job.job_id), "dbName": job.database, "collectionName": job.collection}


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint("collections/clone", Clone, clone_collection, CLONE),
    endpoint("collections/undrop", Undrop, undrop_collection, UNDROP),
)
