"""The RPCs of databases."""

from __future__ import annotations

from elanus.proxy.api import Front
from elanus.proxy.wire.names import check_database_name
from elanus.proxy.wire.requests import Context, add_pairs, database_of, rpc, to_dict
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import Message, milvus_pb2


class Databases:
    def __init__(self, front: Front) -> None:
        self._front = front

    @rpc("properties")
    def CreateDatabase(self, request: Message, context: Context) -> Message:
        self._front.create_database(check_database_name(request.db_name), to_dict(request.properties))
        return success()

    @rpc()
    def DropDatabase(self, request: Message, context: Context) -> Message:
        self._front.drop_database(check_database_name(request.db_name))
        return success()

    @rpc()
    def ListDatabases(self, request: Message, context: Context) -> Message:
        found = self._front.list_databases()
        return milvus_pb2.ListDatabasesResponse(
            db_names=[database.name for database in found],
            created_timestamp=[database.created for database in found],
            db_ids=[database.database_id for database in found],
        )

    @rpc()
    def DescribeDatabase(self, request: Message, context: Context) -> Message:
        found = self._front.describe_database(database_of(request, context))
        response = milvus_pb2.DescribeDatabaseResponse(
            db_name=found.name, dbID=found.database_id, created_timestamp=found.created
        )
        add_pairs(response.properties, found.properties)
        return response

    @rpc("properties", "delete_keys")
    def AlterDatabase(self, request: Message, context: Context) -> Message:
        self._front.alter_database(
            database_of(request, context), to_dict(request.properties), tuple(request.delete_keys)
        )
        return success()
