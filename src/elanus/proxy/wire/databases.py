"""The RPCs of databases."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.core.names import check_database_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import Visibility
from elanus.proxy.access.permission import NO_PRIVILEGE
from elanus.proxy.api.databases import DatabaseVerbs
from elanus.proxy.wire.requests import add_pairs, database_of, rpc, to_dict
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2


class Databases:
    def __init__(self, verbs: DatabaseVerbs, visible: Visibility) -> None:
        self._verbs = verbs
        self._visible = visible

    @rpc("properties", privilege="PrivilegeCreateDatabase")
    def CreateDatabase(self, request: milvus_pb2.CreateDatabaseRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.create_database(check_database_name(request.db_name), to_dict(request.properties))
        return success()

    @rpc(privilege="PrivilegeDropDatabase")
    def DropDatabase(self, request: milvus_pb2.DropDatabaseRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.drop_database(check_database_name(request.db_name))
        return success()

    @rpc(privilege=NO_PRIVILEGE)
    def ListDatabases(
        self, request: milvus_pb2.ListDatabasesRequest, caller: Caller
    ) -> milvus_pb2.ListDatabasesResponse:
        databases = {database.name: database for database in self._verbs.list_databases()}
        found = [databases[name] for name in self._visible.databases(caller, databases)]
        return milvus_pb2.ListDatabasesResponse(
            db_names=[database.name for database in found],
            created_timestamp=[database.created for database in found],
            db_ids=[database.database_id for database in found],
        )

    @rpc(privilege="PrivilegeDescribeDatabase")
    def DescribeDatabase(
        self, request: milvus_pb2.DescribeDatabaseRequest, caller: Caller
    ) -> milvus_pb2.DescribeDatabaseResponse:
        found = self._verbs.describe_database(database_of(request, caller))
        response = milvus_pb2.DescribeDatabaseResponse(
            db_name=found.name, dbID=found.database_id, created_timestamp=found.created
        )
        add_pairs(response.properties, found.properties)
        return response

    @rpc("properties", "delete_keys", "db_id", privilege="PrivilegeAlterDatabase")
    def AlterDatabase(self, request: milvus_pb2.AlterDatabaseRequest, caller: Caller) -> common_pb2.Status:
        """Alter the named database. The Node.js client also sends ``db_id``, which alone is refused."""
        if request.db_id and not request.db_name:
            raise InvalidParameter(f"db_name is empty and db_id is {request.db_id}: name the database")
        self._verbs.alter_database(
            database_of(request, caller), to_dict(request.properties), tuple(request.delete_keys)
        )
        return success()
