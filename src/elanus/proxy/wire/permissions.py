"""The privilege that each RPC of the service needs, fixed when a server starts.

The protos declare a privilege for most requests. For the others there is a table here. An RPC in neither
stops the start: an update of the protos cannot bring an RPC that nobody thought about.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from google.protobuf.descriptor import Descriptor, ServiceDescriptor

from elanus.proxy.access.permission import NO_PRIVILEGE, ObjectType, Permission
from elanus.proxy.wire.protos.pool import message_options
from elanus.proxy.wire.stubs import common_pb2

_EVERYBODY = Permission(NO_PRIVILEGE, ObjectType.GLOBAL)
_STATISTICS = "PrivilegeGetStatistics"

WITHOUT_DECLARATION: Mapping[str, Permission] = {
    "Connect": _EVERYBODY,  # every client calls it first
    "GetVersion": _EVERYBODY,
    "CheckHealth": _EVERYBODY,
    "GetComponentStates": _EVERYBODY,
    "GetMetrics": _EVERYBODY,  # the topology only
    "AllocTimestamp": _EVERYBODY,
    "Dummy": _EVERYBODY,
    "RegisterLink": _EVERYBODY,
    "CalcDistance": _EVERYBODY,  # on vectors in the request
    # On texts in the request, with the analyzer of a field.
    "RunAnalyzer": Permission(NO_PRIVILEGE, ObjectType.COLLECTION, "collection_name"),
    "ComputePhraseMatchSlop": _EVERYBODY,  # on texts in the request
    "ListDatabases": _EVERYBODY,  # lists what the caller may see
    "ShowCollections": Permission(NO_PRIVILEGE, ObjectType.COLLECTION, "collection_names"),  # the same
    "HasCollection": Permission(NO_PRIVILEGE, ObjectType.COLLECTION, "collection_name"),
    # The caller knows the number or the timestamp of what it began itself.
    "GetFlushAllState": _EVERYBODY,
    "GetCompactionState": _EVERYBODY,
    "GetImportState": _EVERYBODY,
    "DescribePrewarmTask": _EVERYBODY,
    "GetRestoreSnapshotState": _EVERYBODY,
    "GetRefreshExternalCollectionProgress": _EVERYBODY,
    # Counts and places of rows. The reference asks for nothing here; this server does.
    "ListImportTasks": Permission("PrivilegeImport", ObjectType.COLLECTION, "collection_name"),
    "GetPersistentSegmentInfo": Permission(_STATISTICS, ObjectType.COLLECTION, "collectionName"),
    "GetQuerySegmentInfo": Permission(_STATISTICS, ObjectType.COLLECTION, "collectionName"),
    "GetCompactionStateWithPlans": Permission(  # by the number of a compaction, as above
        _STATISTICS, ObjectType.COLLECTION, "collection_name", if_named=True
    ),
    "GetReplicas": Permission(_STATISTICS, ObjectType.COLLECTION, "collection_name"),
    "ListIndexedSegment": Permission("PrivilegeIndexDetail", ObjectType.COLLECTION),
    "DescribeSegmentIndexData": Permission("PrivilegeIndexDetail", ObjectType.COLLECTION),
    "ListRefreshExternalCollectionJobs": Permission(
        "PrivilegeRefreshExternalCollection", ObjectType.COLLECTION
    ),
    # Between servers.
    "ReplicateMessage": Permission("PrivilegeUpdateReplicateConfiguration", ObjectType.GLOBAL),
    "CreateReplicateStream": Permission("PrivilegeUpdateReplicateConfiguration", ObjectType.GLOBAL),
    "DumpMessages": Permission("PrivilegeUpdateReplicateConfiguration", ObjectType.GLOBAL),
    "GetReplicateInfo": Permission("PrivilegeGetReplicateConfiguration", ObjectType.GLOBAL),
}
"""The RPCs whose requests declare nothing, and what this server requires for each."""

_ABOUT = ("collection_name", "oldName", "alias", "target_collection_name")
"""Fields by which a request that needs a global privilege says which collection it is about."""
_ABOUT_SPECIAL = {
    "SelectGrantRequest": ("entity.role.name",),
    "AlterAliasRequest": ("collection_name", "alias"),  # both the new collection and the present one
}
_ARRIVALS = {"RenameCollectionRequest": "newDBName", "RestoreSnapshotRequest": "target_db_name"}
"""The requests by which a collection comes into another database. The reference asks for no right there."""
_FOUND_BY = {"UnpinSnapshotDataRequest": ("pin_id", "place_of_pin")}
"""The requests with the number of something in a collection: the field, and the method that finds the
collection. The reference asks for the right in the connection's database, whosever the pin is."""


def service_permissions(service: ServiceDescriptor) -> dict[str, Permission]:
    """Return the permission of each RPC by its name.

    Raises `ValueError` naming an RPC for which neither the protos nor `WITHOUT_DECLARATION` say anything.
    """
    found = {}
    for method in service.methods:
        name = str(method.name)
        permission = declared_by_protos(method.input_type) or WITHOUT_DECLARATION.get(name)
        if permission is None:
            raise ValueError(
                f"the RPC {name} declares no privilege: say in elanus.proxy.wire.permissions what it needs"
            )
        found[name] = permission
    return found


def declared_by_protos(request: Descriptor) -> Permission | None:
    """Return the permission that the protos declare for a request message; None if they declare none."""
    options = message_options(request)
    if not options.HasExtension(common_pb2.privilege_ext_obj):
        return None
    declared = options.Extensions[common_pb2.privilege_ext_obj]
    number = declared.object_name_indexs or declared.object_name_index
    path = ""
    if number > 0:
        field = request.fields_by_number[number]
        path = field.name
        if field.message_type is not None:  # its first field is the name
            path += f".{field.message_type.fields_by_number[1].name}"
    path, found_by = _FOUND_BY.get(request.name, (path, ""))
    return Permission(
        common_pb2.ObjectPrivilege.Name(declared.object_privilege),
        ObjectType(common_pb2.ObjectType.Name(declared.object_type)),
        path,
        _ARRIVALS.get(request.name, ""),
        found_by,
    )


@cache
def about_fields(request: Descriptor, permission: Permission) -> tuple[str, ...]:
    """Return the fields with the names that a request is about.

    The protos name none for global privileges. Without one, a grant of a global privilege on one collection
    would give nothing: creating an alias of it, for example, would require the privilege on all collections.
    """
    if permission.object_field:
        return (permission.object_field,)
    if permission.object_type is ObjectType.USER:
        return ()
    if request.name in _ABOUT_SPECIAL:
        return _ABOUT_SPECIAL[request.name]
    return next(((field,) for field in _ABOUT if field in request.fields_by_name), ())
