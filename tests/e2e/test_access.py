"""Users and their rights through the client library: two proxies, one policy, in force at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from harness import Server, until
from pymilvus import MilvusClient, MilvusException

pytestmark = pytest.mark.e2e

SETTINGS = {
    "proxy.count": 2,
    "pipeline.enabled": False,
    "proxy.authorization_enabled": True,
    "audit.enabled": True,
    "audit.data_share": 1,
}
ROOT = "root:Milvus"
ROWS = [{"id": n, "vector": [float(n)] * 4} for n in range(10)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("access") / "data", SETTINGS) as server:
        yield server.start()
        server.stop()


Connect = Callable[..., MilvusClient]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    made = []

    def open_client(token: str, proxy: int = 0) -> MilvusClient:
        addresses = (server.address, *server.other_addresses)
        client = MilvusClient(f"http://{addresses[proxy]}", token=token)
        made.append(client)
        return client

    yield open_client
    for client in made:
        client.close()


def status_of(work: Callable[[], Any]) -> grpc.StatusCode | None:
    """How the call was refused; None if it was not."""
    try:
        work()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


def test_who_does_not_sign_in_is_not_connected(connect: Connect) -> None:
    for token in ("", "root:milvus", "nobody:Milvus", "elk_1_secret"):
        with pytest.raises(MilvusException):
            connect(token)


def test_a_user_does_what_its_roles_allow_on_every_proxy(connect: Connect, server: Server) -> None:
    root = connect(ROOT)
    for name in ("books", "films"):
        root.create_collection(name, 4, consistency_level="Strong")
    root.create_user("ada", "secret1")
    root.create_role("writer")
    root.grant_role("ada", "writer")
    here, there = connect("ada:secret1"), connect("ada:secret1", proxy=1)
    for ada in (here, there):
        assert status_of(lambda ada=ada: ada.insert("books", ROWS)) is DENIED
        assert ada.list_collections() == []

    root.grant_privilege_v2("writer", "CollectionReadWrite", "books", db_name="default")
    for ada in (here, there):
        ada.insert("books", ROWS)
        assert len(ada.search("books", [[0.0] * 4], limit=3)[0]) == 3
        assert status_of(lambda ada=ada: ada.insert("films", ROWS)) is DENIED
        assert status_of(lambda ada=ada: ada.drop_collection("books")) is DENIED
        assert status_of(lambda ada=ada: ada.create_user("eve", "secret1")) is DENIED
        assert ada.list_collections() == ["books"]

    for proxy in (0, 1):  # each revoke is at one proxy, and in force at the other when it returns
        at = connect(ROOT, proxy=proxy)
        other = (there, here)[proxy]
        at.revoke_privilege_v2("writer", "CollectionReadWrite", "books", db_name="default")
        assert status_of(lambda other=other: other.insert("books", ROWS)) is DENIED
        at.grant_privilege_v2("writer", "CollectionReadWrite", "books", db_name="default")
        other.insert("books", ROWS)


def test_an_alias_has_the_rights_of_its_collection(connect: Connect) -> None:
    root, ada = connect(ROOT), connect("ada:secret1", proxy=1)
    root.create_alias("films", "shelf")
    assert status_of(lambda: ada.insert("shelf", ROWS)) is DENIED
    root.alter_alias("books", "shelf")
    ada.insert("shelf", ROWS)
    root.drop_alias("shelf")


def test_an_id_has_the_rights_of_its_collection(connect: Connect) -> None:
    """The client asks for replicas by the id of their collection, and for a compaction by its own."""
    ada = connect("ada:secret1")
    assert len(ada.describe_replica("books")) == 1
    assert status_of(lambda: ada.describe_replica("films")) is DENIED
    assert ada.get_compaction_state(ada.compact("books")) in ("Executing", "Completed")
    assert status_of(lambda: ada.compact("films")) is DENIED


def test_rights_outlive_the_server_and_passwords_end_at_once(connect: Connect, server: Server) -> None:
    server.restart()
    here, there = connect("ada:secret1"), connect("ada:secret1", proxy=1)
    assert there.list_collections() == ["books"]
    here.update_password("ada", "secret1", "secret2")
    assert status_of(there.list_collections) is UNKNOWN
    there = connect("ada:secret2", proxy=1)
    assert there.list_collections() == ["books"]
    connect(ROOT).drop_user("ada")
    assert status_of(there.list_collections) is UNKNOWN


def test_refusals_and_changes_are_in_the_audit_log(server: Server) -> None:
    def written() -> list[str]:
        text = (server.data_dir / "audit" / "audit.log").read_text()
        return text.splitlines() if '"DeleteCredential"' in text else []

    lines = until(written, 60, "the last change is in the audit log")
    records = [json.loads(line) for line in lines]
    refused = {(r["user"], r["operation"]) for r in records if r["decision"] == "refused"}
    assert {("ada", "Insert"), ("ada", "DropCollection"), ("", "Connect")} <= refused
    allowed = {(r["user"], r["operation"], *r["objects"]) for r in records if r["decision"] == "allowed"}
    assert {("root", "CreateCredential"), ("root", "CreateCollection", "books")} <= allowed
    assert ("ada", "Search", "books") in allowed
    assert not any("secret" in line for line in lines)
