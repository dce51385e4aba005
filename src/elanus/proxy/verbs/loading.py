"""Load and release, and the progress of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elanus.api.querycoord import LoadStatus, QueryCoordApi
from elanus.core.catalog import Index, load_defaults
from elanus.core.errors import (
    CollectionNotFound,
    CollectionNotLoaded,
    DatabaseNotFound,
    IndexNotFound,
    InvalidParameter,
    PartitionNotLoaded,
    Unavailable,
)
from elanus.core.ids import CollectionID, FieldID, NodeID, SegmentID
from elanus.core.rate_limits import Action
from elanus.core.requests import fields_to_load
from elanus.proxy.api.loading import LoadedView, LoadRequest, LoadStateView, ReplicaView
from elanus.proxy.role.cache import CachedCollection
from elanus.proxy.verbs.family import VerbFamily, partition_ids, refuse_partitions

_OBSTACLES_SHOWN = 5
_STALL_SHOWN_S = 30.0
"""A client that waits for a load gets the reason after this time, as an error. A store that is restarted is
back earlier."""


class Loading(VerbFamily):
    @property
    def _query(self) -> QueryCoordApi:
        return self._proxy.coordinators.query

    def load(self, request: LoadRequest) -> None:
        """Where a client names no replicas or groups, the properties of the database count; a loaded
        collection stays as it is."""
        cached = self._collection(request.database, request.collection)
        if request.partitions:
            refuse_partitions(cached, "load partitions")
        self._proxy.admission.allow(Action.DDL, cached)
        if request.refresh:
            if self._status(cached.collection_id) is None:
                raise CollectionNotLoaded(f"collection not loaded[collection={cached.collection_id}]")
            return
        wanted = partition_ids(cached, request.partitions)
        fields = fields_to_load(cached.view.schema, request.load_fields, dynamic=not request.skip_dynamic)
        replicas, groups = request.replicas, request.resource_groups
        if self._status(cached.collection_id) is None and not (replicas and groups):
            own_replicas, own_groups = load_defaults(self._database_properties(request.database))
            replicas, groups = replicas or own_replicas, groups or own_groups
        index = self._proxy.coordinators.index

        async def load_if_indexed() -> None:
            # The indexes as of this turn: the definition before may have dropped one.
            _check_indexed(cached, request.collection, await index.indexes(cached.collection_id), fields)
            await self._query.load(cached.collection_id, wanted, replicas, groups, fields)

        self._proxy.define("load", load_if_indexed)

    def _database_properties(self, database: str) -> Mapping[str, str]:
        found = self._proxy.define("list databases", self._proxy.coordinators.root.list_databases)
        return next((known.properties for known in found if known.name == database), {})

    def release(self, database: str, collection: str, partitions: Sequence[str]) -> None:
        cached = self._collection(database, collection)
        if partitions:
            refuse_partitions(cached, "release partitions")
        self._proxy.admission.allow(Action.DDL, cached)
        wanted = partition_ids(cached, tuple(partitions))
        self._proxy.define("release", lambda: self._query.release(cached.collection_id, wanted))

    def loading_progress(self, database: str, collection: str, partitions: Sequence[str]) -> LoadedView:
        cached = self._collection(database, collection)
        status = self._status(cached.collection_id)
        if status is None:
            raise CollectionNotLoaded(f"collection not loaded[collection={collection}]")
        view = _loaded(cached, status, partitions)
        if view.percentage < 100 and status.stall is not None and status.stall.for_s > _STALL_SHOWN_S:
            raise Unavailable(
                f"collection {collection} is not loaded yet: for {status.stall.for_s:.0f} s its load could "
                f"not go on: {status.stall.reason}. It goes on by itself when this is repaired; see "
                "`elanus doctor`"
            )
        return view

    def load_state(self, database: str, collection: str, partitions: Sequence[str]) -> LoadStateView:
        try:
            cached = self._collection(database, collection)
            for name in partitions:
                cached.partition_id(name)
            status = self._status(cached.collection_id)
            if status is None:
                return LoadStateView("NotLoad")
            state = "Loaded" if _loaded(cached, status, partitions).percentage == 100 else "Loading"
            return LoadStateView(state, _obstacle(cached, status, partitions))
        except PartitionNotLoaded:
            return LoadStateView("NotLoad")
        except (CollectionNotFound, DatabaseNotFound):
            return LoadStateView("NotExist")

    def loaded_collections(self, database: str) -> Mapping[str, LoadedView]:
        coordinators = self._proxy.coordinators
        found = self._proxy.define("list loaded", lambda: coordinators.root.list_collections(database))
        loads = self._proxy.define("load states", self._query.loads)
        statuses = {status.collection_id: status for status in loads}
        return {
            c.name: LoadedView(c.name, _percentage(statuses[c.collection_id]), queryable=True)
            for c in found
            if c.collection_id in statuses
        }

    def loaded_partitions(self, database: str, collection: str) -> Mapping[str, LoadedView]:
        cached = self._collection(database, collection)
        status = self._status(cached.collection_id)
        if status is None:
            raise CollectionNotLoaded(f"collection not loaded[collection={collection}]")
        return {
            name: LoadedView(name, status.percentages[partition_id], queryable=True)
            for name, partition_id in cached.partitions.items()
            if partition_id in status.percentages
        }

    def replicas(self, database: str, collection: str) -> Sequence[ReplicaView]:
        cached = self._collection(database, collection)
        found = self._proxy.define("replicas", lambda: self._query.replicas(cached.collection_id))
        return [
            ReplicaView(
                status.info.replica, status.nodes, status.info.vchannels, status.group, status.outbound
            )
            for status in found
        ]

    def load_balance(
        self, database: str, collection: str, source: int, targets: Sequence[int], segment_ids: Sequence[int]
    ) -> None:
        cached = self._collection(database, collection)
        self._proxy.define(
            "load balance",
            lambda: self._query.load_balance(
                cached.collection_id,
                NodeID(source),
                tuple(map(NodeID, targets)),
                tuple(map(SegmentID, segment_ids)),
            ),
        )

    def _status(self, collection_id: CollectionID) -> LoadStatus | None:
        found = self._proxy.define("load state", lambda: self._query.loads(collection_id))
        return found[0] if found else None


def _check_indexed(
    cached: CachedCollection, collection: str, indexes: Sequence[Index], loaded: Sequence[FieldID]
) -> None:
    """Check that all vector fields to load have an index. ``loaded``: empty for all fields.

    Raises `IndexNotFound` if the collection has no index at all, else `InvalidParameter`.
    """
    indexed = {index.field_id for index in indexes}
    fields = [f for f in cached.view.schema.searched_fields if not loaded or f.field_id in loaded]
    lacking = [field.name for field in fields if field.field_id not in indexed]
    if not lacking:
        return
    text = f"there is no vector index on field: [{' '.join(lacking)}], please create index firstly"
    if not indexed:
        raise IndexNotFound(f"{text}: index not found[collection={collection}]")
    raise InvalidParameter(text)


def _percentage(status: LoadStatus) -> int:
    return min(status.percentages.values(), default=0)


def _obstacle(cached: CachedCollection, status: LoadStatus, partitions: Sequence[str]) -> str:
    wanted = partition_ids(cached, tuple(partitions))
    found = [one.reason for one in status.unreadable if not wanted or one.partition_id in wanted]
    more = f" (and {len(found) - _OBSTACLES_SHOWN} more segments)" if len(found) > _OBSTACLES_SHOWN else ""
    stalls = [status.stall.reason] if status.stall and _percentage(status) < 100 else []
    return "; ".join([*status.unreadable_logs, *stalls, *found[:_OBSTACLES_SHOWN]]) + more


def _loaded(cached: CachedCollection, status: LoadStatus, partitions: Sequence[str]) -> LoadedView:
    wanted = partition_ids(cached, tuple(partitions)) or tuple(status.percentages)
    for name, partition_id in zip(partitions, wanted, strict=False):
        if partition_id not in status.percentages:
            raise PartitionNotLoaded(f"partition not loaded[partition={name}]")
    percentage = min((status.percentages[p] for p in wanted), default=0)
    return LoadedView(cached.view.name, percentage, percentage == 100)
