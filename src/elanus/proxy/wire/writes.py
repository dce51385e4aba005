"""The RPCs that write: insert, upsert, delete, flush."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from elanus.core.errors import ElanusError, MissingParameter, SchemaMismatch
from elanus.core.moments import with_offsets
from elanus.core.names import check_collection_name, check_partition_name
from elanus.core.partial_update import ArrayChange, array_changes
from elanus.core.reduce import primary_keys
from elanus.core.timestamps import Timestamp, physical_ms
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.collections import CollectionView
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.api.writes import Delete, MutationResult, PartialMutation, Update
from elanus.proxy.api.writes import Insert as RowInsert
from elanus.proxy.wire.parameters import filter_values
from elanus.proxy.wire.requests import consistency_level, database_of, few_ids, rpc
from elanus.proxy.wire.results import add_ids, extend
from elanus.proxy.wire.rows import decode_rows
from elanus.proxy.wire.stubs import milvus_pb2, schema_pb2
from elanus.proxy.wire.unsupported import refuse_key

if TYPE_CHECKING:
    from elanus.proxy.role.cache import CachedCollection

_MS_PER_S = 1000
_WRITE_FIELDS = (
    "collection_name",
    "partition_name",
    "fields_data",
    "num_rows",
    "hash_keys",  # old clients may send them; rows are placed by the hash of their primary key
    "schema_timestamp",
)
_OPERATIONS = {number: name for name, number in schema_pb2.FieldPartialUpdateOp.OpType.items()}


def _explain(response: milvus_pb2.MutationResult, error: ElanusError) -> None:
    """Say which rows of a write that failed are stored, with the keys of all rows, as of a success."""
    if not isinstance(error, PartialMutation):
        return
    extend(response.succ_index, np.flatnonzero(error.stored))
    extend(response.err_index, np.flatnonzero(~error.stored))
    response.insert_cnt = len(response.succ_index)
    add_ids(response.IDs, primary_keys(error.primary_keys))


def _explain_delete(response: milvus_pb2.MutationResult, error: ElanusError) -> None:
    """Say how many keys are deleted. No keys, as in an answer without an error."""
    if isinstance(error, PartialMutation):
        response.delete_cnt = int(error.stored.sum())


def _changes(operations: Iterable[schema_pb2.FieldPartialUpdateOp]) -> dict[str, ArrayChange]:
    """Return the arrays that are not replaced. Raises `InvalidParameter`."""
    return array_changes((sent.field_name, _OPERATIONS.get(sent.op, str(sent.op))) for sent in operations)


class Writes:
    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    @rpc(*_WRITE_FIELDS, privilege="PrivilegeInsert", on="collection_name", explains=_explain)
    def Insert(self, request: milvus_pb2.InsertRequest, caller: Caller) -> milvus_pb2.MutationResult:
        refuse_key(caller)
        return _mutation(self._verbs.insert(self._insert(request, caller, replaces=False)))

    @rpc(
        *_WRITE_FIELDS,
        "partial_update",
        "field_ops",
        privilege="PrivilegeUpsert",
        on="collection_name",
        explains=_explain,
    )
    def Upsert(self, request: milvus_pb2.UpsertRequest, caller: Caller) -> milvus_pb2.MutationResult:
        changes = _changes(request.field_ops)
        if request.partial_update or changes:
            return _mutation(self._verbs.update(self._update(request, caller, changes)))
        return _mutation(self._verbs.upsert(self._insert(request, caller, replaces=True)))

    def _update(
        self, request: milvus_pb2.UpsertRequest, caller: Caller, changes: Mapping[str, ArrayChange]
    ) -> Update:
        insert = self._insert(request, caller, replaces=True, partial=True)
        return Update(insert.collection, insert.partition, insert.rows, changes, insert.client)

    def _insert(
        self,
        request: milvus_pb2.InsertRequest | milvus_pb2.UpsertRequest,
        caller: Caller,
        *,
        replaces: bool,
        partial: bool = False,
    ) -> RowInsert:
        """Decode the rows, for the collection that the name refers to now. ``partial``: of some columns."""
        database = database_of(request, caller)
        name = check_collection_name(request.collection_name)
        collection = self._verbs.collection(database, name)
        view = collection.view
        _check_schema_version(view, request.schema_timestamp)
        rows = decode_rows(
            view.schema,
            request.fields_data,
            request.num_rows,
            with_auto_key=replaces or _sends_key(collection, request.fields_data),
            zone=collection.timezone,
            partial=partial,
        )
        partition = request.partition_name and check_partition_name(request.partition_name)
        return RowInsert(collection, partition, rows, caller.client)

    @rpc(
        "collection_name",
        "partition_name",
        "expr",
        "expr_template_values",
        "consistency_level",
        "hash_keys",
        privilege="PrivilegeDelete",
        on="collection_name",
        explains=_explain_delete,
    )
    def Delete(self, request: milvus_pb2.DeleteRequest, caller: Caller) -> milvus_pb2.MutationResult:
        if not request.expr:
            raise MissingParameter(
                "delete plan can't be empty or always true: name the rows by key or by a filter"
            )
        name = check_collection_name(request.collection_name)
        collection = self._verbs.collection(database_of(request, caller), name)
        consistency_level(request.consistency_level)  # a delete sees all rows, but the level must exist
        result = self._verbs.delete(
            Delete(
                collection=collection,
                partition=request.partition_name,
                filter=with_offsets(request.expr, collection.timezone),
                filter_values=filter_values(request.expr_template_values),
                client=caller.client,
            )
        )
        # No keys, as in the reference since 2.3.2: a client that gets keys hides the count.
        return milvus_pb2.MutationResult(delete_cnt=result.delete_count, timestamp=result.ts)

    @rpc("collection_names", privilege="PrivilegeFlush", on="collection_names")
    def Flush(self, request: milvus_pb2.FlushRequest, caller: Caller) -> milvus_pb2.FlushResponse:
        database = database_of(request, caller)
        names = tuple(check_collection_name(name) for name in request.collection_names)
        result = self._verbs.flush(database, names)
        response = milvus_pb2.FlushResponse(db_name=database)
        for name in names:
            response.coll_segIDs[name].data.extend(result.segment_ids[name])
            response.flush_coll_segIDs[name].data.extend(result.flushed_segment_ids[name])
            response.coll_flush_ts[name] = result.flush_ts[name]
            response.coll_seal_times[name] = physical_ms(result.flush_ts[name]) // _MS_PER_S
        return response

    @rpc(
        "segmentIDs", "collection_name", "flush_ts", privilege="PrivilegeGetFlushState", on="collection_name"
    )
    def GetFlushState(
        self, request: milvus_pb2.GetFlushStateRequest, caller: Caller
    ) -> milvus_pb2.GetFlushStateResponse:
        flushed = self._verbs.flush_state(
            few_ids(request.segmentIDs, "segmentIDs"),
            database_of(request, caller),
            request.collection_name,
            Timestamp(request.flush_ts),
        )
        return milvus_pb2.GetFlushStateResponse(flushed=flushed)

    @rpc(privilege="PrivilegeFlushAll")
    def FlushAll(self, request: milvus_pb2.FlushAllRequest, caller: Caller) -> milvus_pb2.FlushAllResponse:
        """Flush the named database, or all if none is named, whatever the connection's database."""
        return milvus_pb2.FlushAllResponse(flush_all_ts=self._verbs.flush_all(request.db_name))

    @rpc("flush_all_ts", privilege=NO_PRIVILEGE)
    def GetFlushAllState(
        self, request: milvus_pb2.GetFlushAllStateRequest, caller: Caller
    ) -> milvus_pb2.GetFlushAllStateResponse:
        """As `FlushAll`, for the named database or for all."""
        flushed = self._verbs.flush_all_state(request.db_name, Timestamp(request.flush_all_ts))
        return milvus_pb2.GetFlushAllStateResponse(flushed=flushed)


def _check_schema_version(view: CollectionView, schema_timestamp: int) -> None:
    """Check the schema version that clients since 2.6 packed the rows for. On this error they refetch it."""
    if schema_timestamp not in (0, view.schema_version):
        raise SchemaMismatch(
            f"collection schema mismatch[collection={view.name}]: the rows were packed for schema "
            f"{schema_timestamp}, the collection has {view.schema_version}"
        )


def _sends_key(collection: CachedCollection, columns: Iterable[schema_pb2.FieldData]) -> bool:
    """Whether these columns have keys that the rows keep, though keys are automatic."""
    key = collection.view.schema.primary_field.name
    return collection.keeps_sent_keys and any(column.field_name == key for column in columns)


def _mutation(result: MutationResult) -> milvus_pb2.MutationResult:
    response = milvus_pb2.MutationResult(
        insert_cnt=result.insert_count,
        delete_cnt=result.delete_count,
        upsert_cnt=result.upsert_count,
        timestamp=result.ts,
    )
    keys: pa.Array = result.primary_keys
    extend(response.succ_index, np.arange(len(keys)))
    add_ids(response.IDs, primary_keys(keys))
    return response
