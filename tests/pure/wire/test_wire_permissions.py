"""Each operation of a client port declares its privilege, and the field that names its object."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import pytest
from google.protobuf.message import Message

from elanus.api.backups import BackupApi
from elanus.api.connector import ConnectorApi
from elanus.api.keys import KeysApi
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import NO_PRIVILEGE, ObjectType, permission_of, requires
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.operations import milvus_operations, object_names
from elanus.proxy.wire.permissions import (
    WITHOUT_DECLARATION,
    about_fields,
    declared_by_protos,
    service_permissions,
)
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
BACKUPS = BackupService(NOTHING, NOTHING)
KEYS = Keys(NOTHING)
OWN = {
    operation.name: operation.permission
    for api, target in ((ConnectorApi, CONNECTOR), (BackupApi, BACKUPS), (KeysApi, KEYS))
    for operation in interface_operations(api, target)
}

FOR_EVERYBODY = {"ConnectorApi.import_directory", "ConnectorApi.import_task"}
"""The calls of our own clients that need no privilege: a directory, and a task whose id the caller knows."""


def test_the_operations_were_found() -> None:
    assert len(RPCS) > 70
    assert {f"ConnectorApi.{name}" for name in ("snapshot", "start_import")} <= set(OWN)


@pytest.mark.parametrize("name", sorted(RPCS))
def test_an_rpc_declares_what_the_protos_or_the_table_say(name: str) -> None:
    request = SERVICE.methods_by_name[name].input_type
    assert RPCS[name] == (declared_by_protos(request) or WITHOUT_DECLARATION[name])
    for path in about_fields(request, RPCS[name]):
        if RPCS[name].found_by:
            assert path in request.fields_by_name
        else:
            object_names(request, path)


def test_every_rpc_of_the_service_has_a_permission() -> None:
    permissions = service_permissions(SERVICE)
    methods = {str(method.name): method for method in SERVICE.methods}
    assert permissions.keys() == methods.keys()
    declared = {name for name, method in methods.items() if declared_by_protos(method.input_type)}
    assert declared | WITHOUT_DECLARATION.keys() == permissions.keys()
    assert not declared & WITHOUT_DECLARATION.keys(), "the protos have the last word"


def test_an_rpc_that_nobody_thought_about_stops_the_start() -> None:
    class Method:
        name = "OpenEveryDoor"
        input_type = milvus_pb2.ConnectRequest.DESCRIPTOR

    class Service:
        methods = (SERVICE.methods_by_name["Search"], Method())

    with pytest.raises(ValueError, match="the RPC OpenEveryDoor declares no privilege"):
        service_permissions(Service())  # type: ignore[arg-type]


def test_a_method_that_declares_less_than_its_rpc_needs_stops_the_start() -> None:
    class Lax:
        @rpc(privilege=NO_PRIVILEGE)
        def Search(self, request: Message, caller: Caller) -> Message:
            raise AssertionError

    with pytest.raises(ValueError, match=r"Search declares .* but needs .*PrivilegeSearch"):
        list(milvus_operations([Lax()]))


@pytest.mark.parametrize(
    ("rpc_name", "fields"),
    [
        ("DescribeCollection", ("collection_name",)),
        ("CreateAlias", ("collection_name",)),
        ("AlterAlias", ("collection_name", "alias")),
        ("DropAlias", ("alias",)),
        ("RenameCollection", ("oldName",)),
        ("SelectGrant", ("entity.role.name",)),
        ("CreateDatabase", ()),
        ("Search", ("collection_name",)),
        ("SelectUser", ("user.name",)),
    ],
)
def test_a_request_with_a_global_privilege_is_about_an_object(rpc_name: str, fields: tuple[str, ...]) -> None:
    request = SERVICE.methods_by_name[rpc_name].input_type
    assert about_fields(request, service_permissions(SERVICE)[rpc_name]) == fields


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_call_of_our_own_clients_needs_a_privilege_that_exists(name: str) -> None:
    privilege = OWN[name].privilege
    assert (privilege == NO_PRIVILEGE) == (name in FOR_EVERYBODY)
    assert privilege == NO_PRIVILEGE or privilege in common_pb2.ObjectPrivilege.keys()  # noqa: SIM118 - no dict


def test_the_object_types_are_those_of_the_protos() -> None:
    assert sorted(ObjectType) == sorted(common_pb2.ObjectType.keys())


def test_an_rpc_without_a_declaration_cannot_be_marked() -> None:
    with pytest.raises(TypeError, match="privilege"):
        rpc("collection_name")  # type: ignore[call-arg]


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
        object_names(milvus_pb2.HasCollectionRequest.DESCRIPTOR, field)


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


@pytest.mark.parametrize(
    ("api", "target"), [(ConnectorApi, CONNECTOR), (BackupApi, BACKUPS), (KeysApi, KEYS)]
)
def test_own_operations_take_what_their_interface_says(api: type[Any], target: object) -> None:
    for name, function in inspect.getmembers(api, inspect.iscoroutinefunction):
        expected = [p for p in inspect.signature(function).parameters if p != "self"]
        assert list(inspect.signature(getattr(target, name)).parameters) == ["caller", *expected]
