"""Every RPC of the service, for callers with and without rights: nobody does what was not granted.

The matrix is generated from the service: an RPC that is added later is in it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest
from fake_front import FakeFront
from google.protobuf import message_factory
from wire_calls import observe_nothing

from elanus.api.backups import BackupApi
from elanus.api.connector import ConnectorApi
from elanus.api.keys import KeysApi
from elanus.core.access import AccessPolicy, Role, User, first_policy, with_role, with_user
from elanus.core.errors import CollectionNotFound, PermissionDenied, Unauthenticated
from elanus.core.privileges import ANY, PREFIX, PUBLIC, Grant, object_type_of
from elanus.proxy.calls import Caller, Calls, Finished, Permission
from elanus.proxy.guard import AccessGuard
from elanus.proxy.sign_in import SignIn
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.permissions import about_fields, service_permissions
from elanus.proxy.wire.service import milvus_handlers
from elanus.proxy.wire.stubs import SERVICE

NOTHING: Any = None
PERMISSIONS = service_permissions(SERVICE)
METHODS = {str(method.name): method for method in SERVICE.methods}
STREAMS = {"CreateReplicateStream", "DumpMessages"}
RESTRICTED = sorted(n for n, p in PERMISSIONS.items() if p.privilege)
OPEN = sorted(n for n, p in PERMISSIONS.items() if not p.privilege)
ALIASES = {"shelf": "books"}
PUBLIC_HOLDS = {f"{PREFIX}DescribeCollection", f"{PREFIX}ListAliases", f"{PREFIX}IndexDetail"}


class Reached(BaseException):
    """The guard let the call through. No error of the program, so it is not answered as one."""


@dataclass
class World:
    """Calls that reach nothing, behind the guard. ``policy``: what tests change."""

    policy: AccessPolicy
    calls: Calls
    recorded: list[Finished]

    def try_call(self, rpc: str, caller: Caller, **fields: Any) -> bool:
        """Whether the call gets past the guard."""
        request_type = message_factory.GetMessageClass(METHODS[rpc].input_type)
        try:
            self.calls.answer(rpc, request_type(**fields), caller)
        except Reached:
            return True
        except PermissionDenied as error:
            assert "permission deny to ada in the `" in error.message  # noqa: PT017 - the text clients look for
            assert self.recorded[-1].refused
            return False
        raise AssertionError(f"{rpc} answered by itself")


class Gate:
    """An operation that is only its guarded part: doing it is `Reached`."""

    def __init__(self, operation: Any) -> None:
        self.name = operation.name
        self.permission = operation.permission
        self.objects = operation.objects

    def read(self, sent: Any) -> Any:
        return sent

    def run(self, request: Any, caller: Caller) -> Any:
        raise Reached

    def failed(self, error: Any) -> Any:
        raise AssertionError(error)


OPERATIONS = [
    Gate(operation)
    for operation in (
        *milvus_operations(milvus_families(FakeFront(), "STANDALONE")),
        *interface_operations(ConnectorApi, Connector(NOTHING, NOTHING, "")),
        *interface_operations(BackupApi, BackupService(NOTHING, NOTHING)),
        *interface_operations(KeysApi, Keys(NOTHING)),
    )
]


def real_name(database: str, name: str) -> str:
    if database == "default" and name in ("books", *ALIASES):
        return ALIASES.get(name, name)
    raise CollectionNotFound(name)


def world(*grants: Grant) -> World:
    policy = with_role(first_policy(), Role("clerk", grants), 10)
    policy = with_user(policy, User("ada", "hash", 1, ("clerk",)), 10)
    recorded: list[Finished] = []

    class Recorder:
        def record(self, call: Finished) -> None:
            recorded.append(call)

    made = World(policy, NOTHING, recorded)
    guard = AccessGuard(lambda: made.policy, real_name)
    sign_in = SignIn(lambda: made.policy, "", lambda password, stored: password == stored)
    made.calls = Calls(OPERATIONS, guard, observe_nothing, sign_in, Recorder())
    return made


ADA = Caller(user="ada", origin="ipv4:10.0.0.7:999")


def fields_of(rpc: str, name: str, database: str = "default") -> dict[str, Any]:
    """A request about an object, if it has a field for one."""
    request = METHODS[rpc].input_type
    fields: dict[str, Any] = {}
    for column in ("db_name", "dbName"):
        if column in request.fields_by_name:
            fields[column] = database
    for path in about_fields(request, PERMISSIONS[rpc]):
        first, *rest = path.split(".")
        value: Any = [name] if request.fields_by_name[first].is_repeated else name
        for part in reversed(rest):
            value = {part: value}
        fields[first] = value
    return fields


def names_an_object(rpc: str) -> bool:
    return bool(about_fields(METHODS[rpc].input_type, PERMISSIONS[rpc]))


def has_database(rpc: str) -> bool:
    return not {"db_name", "dbName"}.isdisjoint(METHODS[rpc].input_type.fields_by_name)


def grant_for(permission: Permission, name: str = ANY, database: str = "default") -> Grant:
    privilege = permission.privilege.removeprefix(PREFIX)
    return Grant(object_type_of(privilege), name, database, privilege)


def gated(rpc: str) -> bool:
    return rpc not in STREAMS and "status" in {f.name for f in METHODS[rpc].output_type.fields} | (
        {"status"} if METHODS[rpc].output_type.name == "Status" else set()
    )


CASES = [rpc for rpc in RESTRICTED if gated(rpc)]


@pytest.mark.parametrize("rpc", CASES)
def test_who_holds_nothing_is_refused(rpc: str) -> None:
    allowed = world().try_call(rpc, ADA, **fields_of(rpc, "books"))
    assert allowed == (PERMISSIONS[rpc].privilege in PUBLIC_HOLDS)


@pytest.mark.parametrize("rpc", CASES)
def test_who_holds_nothing_and_is_not_public_is_refused(rpc: str) -> None:
    made = world()
    made.policy = replace(made.policy, roles={**made.policy.roles, PUBLIC: Role(PUBLIC)})
    assert not made.try_call(rpc, ADA, **fields_of(rpc, "books"))


@pytest.mark.parametrize("rpc", CASES)
def test_who_holds_the_privilege_is_allowed(rpc: str) -> None:
    everywhere = world(grant_for(PERMISSIONS[rpc]))
    assert everywhere.try_call(rpc, ADA, **fields_of(rpc, "books"))
    if names_an_object(rpc):
        there = world(grant_for(PERMISSIONS[rpc], "books"))
        assert there.try_call(rpc, ADA, **fields_of(rpc, "books"))


@pytest.mark.parametrize("rpc", [rpc for rpc in CASES if PERMISSIONS[rpc].privilege not in PUBLIC_HOLDS])
def test_a_grant_is_for_its_object_and_database_alone(rpc: str) -> None:
    made = world(grant_for(PERMISSIONS[rpc], "films"))
    assert not made.try_call(rpc, ADA, **fields_of(rpc, "books"))
    if has_database(rpc):
        made = world(grant_for(PERMISSIONS[rpc], database="shop"))
        assert not made.try_call(rpc, replace_database("shop"), **fields_of(rpc, "books"))
        assert made.try_call(rpc, ADA, **fields_of(rpc, "books", "shop"))
    else:
        made = world(grant_for(PERMISSIONS[rpc], database="shop"))
        assert not made.try_call(rpc, ADA)
        assert made.try_call(rpc, replace_database("shop"))


def replace_database(name: str) -> Caller:
    return Caller(user="ada", database=name)


COLLECTIONS = [
    rpc
    for rpc in CASES
    if names_an_object(rpc)
    and has_database(rpc)
    and PERMISSIONS[rpc].object_type != "User"
    and PERMISSIONS[rpc].privilege not in PUBLIC_HOLDS
]


@pytest.mark.parametrize("rpc", COLLECTIONS)
def test_an_alias_is_its_collection(rpc: str) -> None:
    assert world(grant_for(PERMISSIONS[rpc], "books")).try_call(rpc, ADA, **fields_of(rpc, "shelf"))
    assert not world(grant_for(PERMISSIONS[rpc], "shelf")).try_call(rpc, ADA, **fields_of(rpc, "shelf"))


@pytest.mark.parametrize("rpc", [rpc for rpc in OPEN if gated(rpc)])
def test_every_user_may_do_what_needs_no_privilege(rpc: str) -> None:
    assert world().try_call(rpc, ADA, **fields_of(rpc, "books"))


@pytest.mark.parametrize("rpc", CASES)
def test_root_and_members_of_admin_may_do_everything(rpc: str) -> None:
    made = world()
    assert made.try_call(rpc, Caller(user="root"), **fields_of(rpc, "books"))
    users = {**made.policy.users, "ada": User("ada", "hash", 1, ("admin",))}
    made.policy = replace(made.policy, users=users)
    assert made.try_call(rpc, ADA, **fields_of(rpc, "books"))


class Ended(Exception):
    pass


class FakeContext:
    """A gRPC call with a token. `abort` raises `Ended`."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self.ended: tuple[Any, str] | None = None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        if self.token is None:
            return ()
        return (("authorization", base64.b64encode(self.token.encode()).decode()),)

    def peer(self) -> str:
        return "ipv4:10.0.0.7:999"

    def time_remaining(self) -> None:
        return None

    def abort(self, code: Any, text: str) -> None:
        self.ended = (code, text)
        raise Ended


@dataclass
class Details:
    method: str


@pytest.mark.parametrize("token", [None, "ada:wrong", "eve:hash", "elk_1_secret"])
def test_no_rpc_answers_who_does_not_sign_in(token: str | None) -> None:
    made = world()
    handlers: Any = milvus_handlers(made.calls)
    for rpc, method in METHODS.items():
        handler = handlers.service(Details(f"/{SERVICE.full_name}/{rpc}"))
        request = message_factory.GetMessageClass(method.input_type)()
        refused(made, rpc, handler, request, FakeContext(token))


def refused(made: World, rpc: str, handler: Any, request: Any, context: FakeContext) -> None:
    answer = handler.stream_stream or handler.unary_unary or (lambda r, c: list(handler.unary_stream(r, c)))
    with pytest.raises(Ended):
        answer(request, context)
    assert context.ended is not None
    assert context.ended[0] is grpc.StatusCode.UNAUTHENTICATED
    assert made.recorded[-1].operation == rpc
    assert made.recorded[-1].refused


def test_a_dropped_user_is_refused_in_the_middle_of_a_connection() -> None:
    made = world()
    users = {name: user for name, user in made.policy.users.items() if name != "ada"}
    made.policy = replace(made.policy, users=users)
    with pytest.raises(Unauthenticated, match="there is no user ada any more"):
        made.try_call("GetVersion", ADA)
