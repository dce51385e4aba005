"""Each operation of a client port declares its privilege, and the field that names its object."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from elanus.api.connector import ConnectorApi
from elanus.proxy.calls import NO_PRIVILEGE, Caller, ObjectType, Permission, permission_of, requires
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.operations import milvus_operations, object_names
from elanus.proxy.wire.protos.pool import message_options
from elanus.proxy.wire.requests import is_rpc, rpc
from elanus.proxy.wire.stubs import SERVICE, common_pb2, milvus_pb2

NOTHING: Any = None
FAMILIES = milvus_families(NOTHING, "STANDALONE")
RPCS = {
    name: permission_of(method)
    for family in FAMILIES
    for name, method in inspect.getmembers(type(family), is_rpc)
}
CONNECTOR = Connector(NOTHING, NOTHING, "")
OWN = {operation.name: operation.permission for operation in interface_operations(ConnectorApi, CONNECTOR)}

FOR_EVERYBODY = {
    "Connect": "every client calls it first",
    "GetVersion": "says nothing about data",
    "CheckHealth": "says nothing about data",
    "GetComponentStates": "says nothing about data",
    "GetMetrics": "the topology only",
    "AllocTimestamp": "says nothing about data",
    "ListDatabases": "lists what the caller may see",
    "ShowCollections": "lists what the caller may see",
    "HasCollection": "clients ask it before they create one",
    "RunAnalyzer": "the caller sends the texts",
    "ComputePhraseMatchSlop": "the caller sends the texts",
    "GetReplicas": "counts and places, no rows",
    "GetPersistentSegmentInfo": "counts, no rows",
    "GetQuerySegmentInfo": "counts and places, no rows",
    "GetFlushAllState": "the caller knows the timestamp of the flush",
    "GetCompactionState": "the caller knows the id of the compaction",
    "GetCompactionStateWithPlans": "the caller knows the id of the compaction",
    "GetImportState": "the caller knows the id of the task",
    "ListImportTasks": "the reference asks for nothing",
    "ConnectorApi.import_directory": "needed before the collection is named",
    "ConnectorApi.import_task": "the caller knows the id of the task",
}
"""The operations that need no privilege. The protos declare none for any of the RPCs here."""


def declared_by_protos(request: Descriptor) -> Permission | None:
    """The permission that the protos declare for a request message; None if they declare none."""
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
    return Permission(
        common_pb2.ObjectPrivilege.Name(declared.object_privilege),
        ObjectType(common_pb2.ObjectType.Name(declared.object_type)),
        path,
    )


def test_the_operations_were_found() -> None:
    assert len(RPCS) > 70
    assert {f"ConnectorApi.{name}" for name in ("snapshot", "start_import")} <= set(OWN)


@pytest.mark.parametrize("name", sorted(RPCS))
def test_an_rpc_declares_what_the_protos_do_or_that_it_needs_no_privilege(name: str) -> None:
    request = SERVICE.methods_by_name[name].input_type
    permission, expected = RPCS[name], declared_by_protos(request)
    assert permission is not None
    assert (expected is None) == (name in FOR_EVERYBODY)
    if expected is None:
        assert permission.privilege == NO_PRIVILEGE
    else:
        assert permission == expected
    object_names(request, permission.object_field)


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_call_of_our_own_clients_needs_a_privilege_that_exists(name: str) -> None:
    privilege = OWN[name].privilege
    assert (privilege == NO_PRIVILEGE) == (name in FOR_EVERYBODY)
    assert privilege == NO_PRIVILEGE or privilege in common_pb2.ObjectPrivilege.keys()  # noqa: SIM118 - no dict


def test_the_exceptions_are_operations() -> None:
    assert set(FOR_EVERYBODY) <= RPCS.keys() | OWN.keys()


def test_the_object_types_are_those_of_the_protos() -> None:
    assert sorted(ObjectType) == sorted(common_pb2.ObjectType.keys())


def test_an_rpc_without_a_declaration_cannot_be_marked() -> None:
    with pytest.raises(TypeError, match="privilege"):
        rpc("collection_name")  # type: ignore[call-arg]


def toy(privilege: str, on: str) -> object:
    class Toy:
        @rpc(privilege=privilege, on=on)
        def HasCollection(self, request: Message, caller: Caller) -> Message:
            raise AssertionError

    return Toy()


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("collection", "HasCollectionRequest has no field collection"),
        ("time_stamp", "does not contain the name of an object"),
        ("collection_name.name", "does not contain the name of an object"),
        ("base.name", "MsgBase has no field name"),
    ],
)
def test_a_field_that_cannot_name_an_object_is_found(field: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        list(milvus_operations([toy("PrivilegeQuery", field)]))


@pytest.mark.parametrize(
    ("rpc_name", "fields", "names"),
    [
        ("Search", {"collection_name": "books"}, ("books",)),
        ("Search", {}, ()),
        ("Flush", {"collection_names": ["books", "", "films"]}, ("books", "films")),
        ("SelectUser", {"user": {"name": "ada"}}, ("ada",)),
        ("FlushAll", {}, ()),
    ],
)
def test_the_names_are_read_from_requests(rpc_name: str, fields: Any, names: tuple[str, ...]) -> None:
    request_type = getattr(milvus_pb2, SERVICE.methods_by_name[rpc_name].input_type.name)
    permission = RPCS[rpc_name]
    assert permission is not None
    assert object_names(request_type.DESCRIPTOR, permission.object_field)(request_type(**fields)) == names


class ToyApi(Protocol):
    async def polish(self, collection: str) -> None: ...


class Undeclared:
    def polish(self, caller: Caller, collection: str) -> None: ...


class Misdeclared:
    @requires("PrivilegeQuery", on="shelf")
    def polish(self, caller: Caller, collection: str) -> None: ...


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (Undeclared(), "ToyApi.polish declares no permission"),
        (Misdeclared(), "ToyApi.polish has no parameter shelf"),
    ],
)
def test_an_own_call_without_a_declaration_is_found(target: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        list(interface_operations(ToyApi, target))


def test_the_connector_takes_what_its_interface_says() -> None:
    for name, function in inspect.getmembers(ConnectorApi, inspect.iscoroutinefunction):
        expected = [p for p in inspect.signature(function).parameters if p != "self"]
        assert list(inspect.signature(getattr(CONNECTOR, name)).parameters) == ["caller", *expected]
