"""A new RPC takes a verb, and a method of a family that declares its fields and its privilege.

The toy is HasNamespace, which the service has and this release does not. Everything else about it comes from
the code that all RPCs share: the handler on the port, the refusal of other fields, the guard, the status of
answers and errors, the metrics. `FILES` are the source files that a shipped RPC touches; docs/development.md
lists the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_verbs import FakeVerbs
from test_wire_permissions import declared_by_protos
from wire_calls import Recorder, calls_of
from wire_messages import key_message, schema_bytes, vector_message

from elanus.core.errors import CollectionNotFound, InvalidParameter, NotSupported
from elanus.core.names import check_collection_name
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType, permission_of
from elanus.proxy.wire.requests import database_of, rpc
from elanus.proxy.wire.server import MilvusServer
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2

ROOT = Path(__file__).parents[3]
FILES = {
    "src/elanus/proxy/api": "the signature of `ToyVerbs.has_namespace`",
    "src/elanus/proxy/verbs": "its implementation, in a module of the verb's subject",
    "src/elanus/proxy/wire": "`Namespaces.HasNamespace`, in a module of the family",
    "src/elanus/proxy/wire/families.py": "a line, because no family has RPCs about namespaces",
    "src/elanus/proxy/wire/unsupported.py": "the text for the RPC, which goes",
}


class ToyVerbs(FakeVerbs):
    """The verbs, and one more: the namespace of a partition is its name up to the first dot."""

    def has_namespace(self, database: str, collection: str, namespace: str) -> bool:
        names = [partition.name for partition in self.list_partitions(database, collection)]
        return any(name.partition(".")[0] == namespace for name in names)


class Namespaces:
    def __init__(self, verbs: ToyVerbs) -> None:
        self._verbs = verbs

    @rpc("collection_name", "namespace_name", privilege="PrivilegeHasPartition", on="collection_name")
    def HasNamespace(
        self, request: milvus_pb2.HasNamespaceRequest, caller: Caller
    ) -> milvus_pb2.HasNamespaceResponse:
        name = check_collection_name(request.collection_name)
        found = self._verbs.has_namespace(database_of(request, caller), name, request.namespace_name)
        return milvus_pb2.HasNamespaceResponse(value=found)


Ask = Callable[..., Any]


@pytest.fixture
def guard() -> Recorder:
    return Recorder()


@pytest.fixture
def ask(guard: Recorder, answers: list[tuple[str, int]]) -> Iterator[Ask]:
    """The RPC over the wire, to a server with a collection and the toy."""
    verbs = ToyVerbs()
    calls = calls_of(
        verbs, lambda name, code, _: answers.append((name, code)), guard, families=(Namespaces(verbs),)
    )
    create = milvus_pb2.CreateCollectionRequest(
        collection_name="books", schema=schema_bytes(key_message(), vector_message())
    )
    assert calls.answer("CreateCollection", create, Caller()).code == 0
    answers.clear()
    guard.asked.clear()
    server = MilvusServer(calls, "127.0.0.1", 0, max_workers=2)
    with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
        send = channel.unary_unary(
            f"/{SERVICE.full_name}/HasNamespace",
            request_serializer=milvus_pb2.HasNamespaceRequest.SerializeToString,
            response_deserializer=milvus_pb2.HasNamespaceResponse.FromString,
        )
        yield lambda **fields: send(milvus_pb2.HasNamespaceRequest(**fields), timeout=10)
    server.stop(grace_s=0)


def test_the_toy_is_no_rpc_of_this_release() -> None:
    answer = calls_of(FakeVerbs()).answer("HasNamespace", milvus_pb2.HasNamespaceRequest(), Caller())
    assert answer.status.code == NotSupported.code


def test_it_is_answered_guarded_and_counted(
    ask: Ask, guard: Recorder, answers: list[tuple[str, int]]
) -> None:
    answer = ask(collection_name="books", namespace_name="_default")
    assert answer.HasField("status")
    assert (answer.status.code, answer.value) == (0, True)
    assert not ask(collection_name="books", namespace_name="other").value
    asked = ("PrivilegeHasPartition", ObjectType.COLLECTION, "default", ("books",))
    assert [question[1:] for question in guard.asked] == [asked, asked]
    assert answers == [("HasNamespace", 0), ("HasNamespace", 0)]


def test_its_errors_are_statuses(ask: Ask, guard: Recorder, answers: list[tuple[str, int]]) -> None:
    assert ask(collection_name="films").status.code == CollectionNotFound.code
    assert ask(collection_name="").status.code == InvalidParameter.code
    guard.refused = ("PrivilegeHasPartition",)
    assert ask(collection_name="books").status.reason == "PrivilegeHasPartition is refused"
    assert [name for name, code in answers if code] == ["HasNamespace"] * 3


def test_a_field_that_it_does_not_declare_is_refused() -> None:
    class Narrow:
        @rpc("collection_name", privilege="PrivilegeHasPartition", on="collection_name")
        def HasNamespace(self, request: Any, caller: Caller) -> Any:
            raise AssertionError

    calls = calls_of(FakeVerbs(), families=(Narrow(),))
    request = milvus_pb2.HasNamespaceRequest(collection_name="books", namespace_name="a")
    reason = calls.answer("HasNamespace", request, Caller()).status.reason
    assert reason.startswith("the field namespace_name of HasNamespace is not supported")


def test_its_declaration_is_that_of_the_protos() -> None:
    request = milvus_pb2.HasNamespaceRequest.DESCRIPTOR
    assert permission_of(Namespaces.HasNamespace) == declared_by_protos(request)


def test_the_page_lists_the_files() -> None:
    page = (ROOT / "docs" / "development.md").read_text()
    (entry,) = re.findall(r"\*\*An RPC\.\*\*(.*?)(?=\n\n\*\*)", page, re.DOTALL)
    for file in FILES:
        assert (ROOT / file).exists()
        assert f"`{file}`" in entry
