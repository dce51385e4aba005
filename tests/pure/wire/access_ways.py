"""Every way into a server, generated from its registries, before operations that only note that they ran.

A way is an RPC, an endpoint of the REST API or of the console, or a call of Elanus' own clients (Spark,
`elanus backup`, `elanus keys`). It is entered as its clients enter it: with a gRPC context, or an HTTP
request to the whole application.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
from fake_verbs import FakeVerbs
from google.protobuf import message_factory
from starlette.applications import Starlette
from wire_calls import observe_nothing

from elanus.api.backups import BackupApi
from elanus.api.connector import ConnectorApi
from elanus.api.keys import KeysApi
from elanus.console.app import COOKIE, REPORTS, REQUEST_HEADER, Site, console_routes
from elanus.console.sessions import Sessions
from elanus.console.status import console_operations
from elanus.console.views import VIEWS
from elanus.core.access import AccessPolicy, Role, User, first_policy, with_key, with_role, with_user
from elanus.core.api_keys import ApiKey, KeyScope, digest_of, key_text
from elanus.core.errors import CollectionNotFound, InvalidParameter
from elanus.core.privileges import PUBLIC, Grant
from elanus.proxy.access.caller import Caller, FinishedCall
from elanus.proxy.access.guard import AccessGuard
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.calls import Calls, Operation
from elanus.proxy.rest import v1
from elanus.proxy.rest.app import application
from elanus.proxy.rest.endpoint import Endpoint
from elanus.proxy.rest.front import RestFront
from elanus.proxy.rest.operations import rest_operations
from elanus.proxy.rest.table import PREFIX, TABLE
from elanus.proxy.wire.backups import BackupService
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_handler, interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.permissions import about_fields, service_permissions
from elanus.proxy.wire.service import milvus_handlers
from elanus.proxy.wire.status import status_field
from elanus.proxy.wire.stubs import SERVICE, common_pb2
from elanus.rpc.methods import methods_of

NOTHING: Any = None
PERMISSIONS = service_permissions(SERVICE)
METHODS = {str(method.name): method for method in SERVICE.methods}
ALIASES = {"shelf": "books"}
ADA, TOKEN = "ada", "ada:hash"
KEYS: Mapping[str, KeyScope] = {
    "clerk": KeyScope(("clerk",)),
    "other": KeyScope(("other",)),
    "default": KeyScope(databases=("default",)),
    "shop": KeyScope(databases=("shop",)),
}
"""Ada's API keys by their ids, each limited in another way."""
BY_ID = ("DescribeCollection", "BatchDescribeCollection", "ShowPartitions", "GetReplicas", "ManualCompaction")
"""The RPCs that take the id of a collection for its name."""
FOUND_BY = {name: found.object_field for name, found in PERMISSIONS.items() if found.found_by}
"""The RPCs that take the number of something in a collection, and nothing else."""


class ById:
    """The verbs that find what has an id. An import, and a pin, has the id of its collection."""

    def describe_collection(self, _database: str, _name: str, collection_id: int = 0) -> Any:
        for (database, name), known in IDS.items():
            if known == collection_id:
                return SimpleNamespace(database=database, name=name)
        raise CollectionNotFound(f"collection not found[collection={collection_id}]")

    def import_task(self, task_id: int) -> Any:
        return SimpleNamespace(collection_id=task_id)

    def place_of_pin(self, pin_id: int) -> tuple[str, str] | None:
        return next((place for place, known in IDS.items() if known == pin_id), None)


class VerbsById(ById, FakeVerbs):
    """The verbs of the families."""


OWN_CLIENTS: Mapping[type[Any], object] = {
    ConnectorApi: Connector(ById(), NOTHING, ""),  # type: ignore[arg-type]
    BackupApi: BackupService(ById(), NOTHING),  # type: ignore[arg-type]
    KeysApi: Keys(NOTHING),
}
IDS = {("default", "books"): 1, ("default", "films"): 2, ("shop", "books"): 3, ("default", "shelf"): 1}
"""Collections, and their imports, by these ids; an alias is asked for by the id of its collection."""
ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "DescribeCollection": {
        "collection_name": "books",
        "schema": {"fields": [{"name": "id", "is_primary_key": True, "data_type": "Int64"}]},
    },
    "GetLoadState": {"state": common_pb2.LoadStateLoading},
    "Import": {"tasks": [1]},
    "GetImportState": {"state": common_pb2.ImportCompleted},
}
"""RPCs whose answers let the endpoints that call them go on to their next one. All others answer emptily."""


class Gate:
    """An operation without its work: running it is noted in ``passed``."""

    def __init__(self, operation: Operation, passed: list[str]) -> None:
        self.name = operation.name
        self.permission = operation.permission
        self.objects = operation.objects
        self._failed = operation.failed
        self._passed = passed

    def read(self, sent: Any) -> Any:
        return sent

    def run(self, request: Any, caller: Caller) -> Any:
        self._passed.append(self.name)
        if self.name not in METHODS:
            raise InvalidParameter("the guard let the call through")
        answer_type = message_factory.GetMessageClass(METHODS[self.name].output_type)
        return answer_type(**ANSWERS.get(self.name, {}))

    def failed(self, error: Any) -> Any:
        return self._failed(error)


OPERATIONS: tuple[Operation, ...] = (
    *milvus_operations(milvus_families(VerbsById(), "STANDALONE"), ById().describe_collection),
    *rest_operations(FakeVerbs()),
    *console_operations(NOTHING, lambda: 0.0),
    *(one for api, target in OWN_CLIENTS.items() for one in interface_operations(api, target)),
)


def token_of_key(key_id: str) -> str:
    return key_text(key_id, "secret")


def real_name(database: str, name: str) -> str:
    """The alias is in both databases, so only its rights make the difference."""
    if name in ("books", *ALIASES):
        return ALIASES.get(name, name)
    raise CollectionNotFound(name)


class Inline(Executor):
    """Does the work of a request at once."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments, **more))
        return done


@dataclass
class World:
    """A server with the user ada behind all of its fronts. ``policy``: what tests change."""

    policy: AccessPolicy = field(default_factory=first_policy)
    passed: list[str] = field(default_factory=list)
    recorded: list[FinishedCall] = field(default_factory=list)
    status: int = 0
    """The HTTP status of the last answer."""

    def __post_init__(self) -> None:
        self.sign_in = SignIn(lambda: self.policy, "", lambda password, stored: password == stored)
        gates = [Gate(operation, self.passed) for operation in OPERATIONS]
        guard = AccessGuard(lambda: self.policy, real_name)
        self.calls = Calls(
            gates, guard, observe_nothing, self.sign_in, SimpleNamespace(record=self.recorded.append)
        )
        self.sessions = Sessions(self.sign_in, lambda: 0.0)
        site = Site(1_000_000, is_local=False, has_tls=False)
        routes = console_routes(self.calls, self.sessions, Inline(), site)
        rest = RestFront(self.calls, strict=True)
        self.app: Starlette = application(
            rest, Inline(), body_max_bytes=1_000_000, is_local=False, mounts=routes
        )
        self.rpcs: Any = milvus_handlers(self.calls)
        self.loop = asyncio.new_event_loop()
        self.own: dict[type[Any], Any] = {api: interface_handler(api, self.calls) for api in OWN_CLIENTS}
        self.grant()

    def close(self) -> None:
        self.loop.close()

    def grant(self, *grants: Grant, roles: tuple[str, ...] = ()) -> None:
        """Ada has these grants by the role clerk and no others, not even those of the role public."""
        policy = with_role(with_role(first_policy(), Role("clerk", grants), 10), Role("other"), 10)
        policy = with_user(policy, User(ADA, "hash", 1, (*roles, "clerk", "other")), 10)
        for key_id, scope in KEYS.items():
            policy = with_key(policy, ApiKey(key_id, ADA, digest_of(token_of_key(key_id)), 1, scope=scope))
        self.policy = replace(policy, roles={**policy.roles, PUBLIC: Role(PUBLIC)})


@dataclass(frozen=True)
class Asked:
    """A request: who sends it, and what it is about. ``database``: in the request, ``connection``: chosen
    before it, ``token``: by which ada signs in."""

    name: str = "books"
    database: str = ""
    connection: str = ""
    signed_in: bool = True
    token: str = TOKEN


@dataclass(frozen=True)
class Way:
    """``has_database``: the request can name one. ``has_connection``: its connection can. ``names``: the
    request names its object, or has its id, if ``by_id``. ``declared``: the operations that it says it
    calls, None if it says nothing."""

    door: str
    path: str
    has_database: bool
    has_connection: bool
    names: bool
    send: Callable[[World, Asked], None]
    declared: tuple[str, ...] | None = None
    by_id: bool = False

    def __str__(self) -> str:
        return f"{self.door} {self.path}{' by id' if self.by_id else ''}"


class Ended(Exception):
    """A gRPC call was ended with a status."""


class Context:
    """A gRPC call. `abort` raises `Ended`."""

    def __init__(self, asked: Asked, token: str = "") -> None:
        self._metadata: tuple[tuple[str, str], ...] = ()
        if asked.signed_in:
            self._metadata += (("authorization", base64.b64encode((token or asked.token).encode()).decode()),)
        if asked.connection:
            self._metadata += (("dbname", asked.connection),)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:10.0.0.7:999"

    def time_remaining(self) -> None:
        return None

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Ended(code, text)


def all_ways() -> Iterator[Way]:
    for name, method in METHODS.items():
        if name in FOUND_BY:
            yield _rpc_by_id(name, FOUND_BY[name])
        elif status_field(method.output_type) is not None and not method.client_streaming:
            yield _rpc(name)
    for name in BY_ID:
        yield _rpc_by_id(name, "collectionID")
    for path, endpoint in TABLE.items():
        yield _http("REST", PREFIX + path, endpoint, endpoint.operations)
    for path, endpoint in v1.TABLE.items():
        yield _http("REST", v1.PREFIX + path, endpoint, None)
    for path, endpoint in TABLE.items():
        yield _http("console", f"/ui/api/call/{path}", endpoint, endpoint.operations)
    for path, endpoint in VIEWS.items():
        yield _http("console", f"/ui/api/view/{path}", endpoint, endpoint.operations)
    for path, operation in REPORTS.items():
        yield _report(f"/ui/api/{path}", operation)
    for api in OWN_CLIENTS:
        for name in methods_of(api):
            yield _own_call(api, name)


def _rpc(rpc: str) -> Way:
    request = METHODS[rpc].input_type
    databases = [column for column in ("db_name", "dbName") if column in request.fields_by_name]
    about = about_fields(request, PERMISSIONS[rpc])

    def send(world: World, asked: Asked) -> None:
        fields: dict[str, Any] = dict.fromkeys(databases, asked.database)
        for path in about:
            first, *rest = path.split(".")
            value: Any = [asked.name] if request.fields_by_name[first].is_repeated else asked.name
            for part in reversed(rest):
                value = {part: value}
            fields[first] = value
        message = message_factory.GetMessageClass(request)(**fields)
        handler = world.rpcs.service(SimpleNamespace(method=f"/{SERVICE.full_name}/{rpc}"))
        answer = handler.unary_unary or (lambda r, c: list(handler.unary_stream(r, c)))
        with suppress(Ended):
            answer(message, Context(asked))

    return Way("gRPC", rpc, bool(databases), True, bool(about), send, (rpc,))


def _rpc_by_id(rpc: str, column: str) -> Way:
    request = METHODS[rpc].input_type
    several = request.fields_by_name[column].is_repeated

    def send(world: World, asked: Asked) -> None:
        """The request says nothing about a database: the id is of one."""
        collection_id = IDS[asked.database or "default", asked.name]
        fields: dict[str, Any] = {column: [collection_id] if several else collection_id}
        message = message_factory.GetMessageClass(request)(**fields)
        handler = world.rpcs.service(SimpleNamespace(method=f"/{SERVICE.full_name}/{rpc}"))
        with suppress(Ended):
            handler.unary_unary(message, Context(asked))

    return Way("gRPC", rpc, True, False, True, send, (rpc,), by_id=True)


def _own_call(api: type[Any], name: str) -> Way:
    method = methods_of(api)[name]
    target: Any = OWN_CLIENTS[api]
    operation = next(one for one in interface_operations(api, target) if one.name == f"{api.__name__}.{name}")
    about = operation.permission.object_field
    by_id = bool(operation.permission.found_by)

    def send(world: World, asked: Asked) -> None:
        database = asked.database or "default"
        sent = {"database": database, about: IDS[database, asked.name] if by_id else asked.name}
        handler = world.own[api].service(SimpleNamespace(method=f"/elanus.{api.__name__}/{name}"))
        try:
            handler.unary_unary(tuple(sent.get(p) for p in method.parameters), Context(asked))
        except Ended:
            raise AssertionError("the calls of Elanus' own clients report refusals as errors") from None

    has_database = by_id or "database" in method.parameters
    declared = (operation.name,)
    return Way(
        "Spark and elanus", operation.name, has_database, False, bool(about), send, declared, by_id=by_id
    )


NAMING = ("collectionName", "collectionNames", "targetCollectionName", "userName", "roleName", "aliasName")
"""The fields of bodies that name what a request is about."""
BODIES: Mapping[str, Any] = {
    "data": [{"id": 1}],
    "search": [{"data": [[1.0]]}],
    "id": 1,
    "schema": {"fieldName": "f", "dataType": "Int64"},
    "function": {"name": "f", "type": "BM25"},
    "field": {"fieldName": "f", "dataType": "Int64"},
    "indexParams": [{"fieldName": "v"}],
    "partitionNames": ["p"],
    "resource_groups": {},
    "jobId": 1,
    "pinId": 1,
    "vector": [1.0],
    "dimension": 4,
    "files": [["a.parquet"]],
    "fieldName": "x",
    "filter": "a > 1",
    "text": "x",
}
STRUCT_FIELD = {
    "fieldName": "clips",
    "fields": [
        {
            "fieldName": "n",
            "dataType": "Array",
            "elementDataType": "Int64",
            "elementTypeParams": {"max_capacity": 2},
        }
    ],
}
"""The ``schema`` where it is that of a struct array."""
_VALUES: Mapping[type, object] = {str: "x", int: 1, bool: True}


def _http(door: str, path: str, endpoint: Endpoint, operations: tuple[str, ...] | None) -> Way:
    fields = {one.encode_name: one for one in msgspec.structs.fields(endpoint.body)}
    naming = [name for name in NAMING if name in fields and name != "collectionNames"]
    has_database = "dbName" in fields and not any(map(_is_of_no_database, operations or ()))

    by_id = bool(FOUND_BY.keys() & set(operations or ()))
    has_database = has_database or by_id

    def send(world: World, asked: Asked) -> None:
        body = {
            name: BODIES.get(name, _VALUES.get(one.type))
            for name, one in fields.items()
            if one.required or (name in ("dimension", "files", "filter") and name in BODIES)
        }
        body |= dict.fromkeys(naming, asked.name)
        if by_id:
            body["pinId"] = IDS[asked.database or "default", asked.name]
        if path.endswith("struct_fields/add"):
            body["schema"] = STRUCT_FIELD
        if "dbName" in fields and (asked.database or "dbName" in body):
            body["dbName"] = asked.database or "default"
        is_read = path.startswith(v1.PREFIX) and path.removeprefix(v1.PREFIX) in v1.READS
        request(world, door, "GET" if is_read else "POST", path, body, asked)

    names, connects = bool(naming) or by_id, door == "REST" and not by_id
    return Way(door, path, has_database, connects, names, send, operations, by_id=by_id)


def _is_of_no_database(operation: str) -> bool:
    """Users and roles are the server's: ``dbName`` of their endpoints is about the grants in the request."""
    if operation not in METHODS:
        return False
    return {"db_name", "dbName"}.isdisjoint(METHODS[operation].input_type.fields_by_name)


def _report(path: str, operation: str) -> Way:
    def send(world: World, asked: Asked) -> None:
        request(world, "console", "GET", path, {}, asked)

    return Way("console", path, False, False, False, send, (operation,))


def request(world: World, door: str, method: str, path: str, body: Mapping[str, Any], asked: Asked) -> None:
    """Send an HTTP request to the application; its status is kept."""
    headers = {"host": "elanus.example", REQUEST_HEADER.lower(): "test"}
    if asked.connection:
        headers["db-name"] = asked.connection
    if asked.signed_in and door == "REST":
        headers["authorization"] = f"Bearer {asked.token}"
    elif asked.signed_in:
        headers["cookie"] = f"{COOKIE}={world.sessions.begin(*TOKEN.split(':'))}"
    content = json.dumps(body).encode()
    query = "&".join(f"{name}={value}" for name, value in body.items())
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode() if method == "GET" else b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("10.0.0.7", 999),
        "server": ("elanus.example", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            world.status = message["status"]

    world.loop.run_until_complete(world.app(scope, receive, send))
