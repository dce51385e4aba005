"""Refusals with names of any length reach the client as what they are."""

from __future__ import annotations

import grpc
import pytest
from fake_verbs import FakeVerbs
from wire_calls import calls_of

from elanus.core.errors import PermissionDenied
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.wire.server import MilvusServer
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2


class RefusesAll:
    """A guard whose refusals name the database, as that of a server with users."""

    def allow(
        self, caller: Caller, privilege: str, kind: ObjectType, database: str, names: tuple[str, ...]
    ) -> None:
        raise PermissionDenied(f"{privilege}: permission deny to ada in the `{database}` database")


@pytest.mark.parametrize("name", ["d", "d" * 100_000, "\u00fc" * 20_000, "\U0001f600" * 20_000])
def test_a_refusal_reaches_the_client_however_long_the_name_is(name: str) -> None:
    server = MilvusServer(calls_of(FakeVerbs(), guard=RefusesAll()), "127.0.0.1", 0, max_workers=2)
    channel = grpc.insecure_channel(f"127.0.0.1:{server.start()}")
    try:
        ask = channel.unary_unary(
            f"/{SERVICE.full_name}/DescribeCollection",
            request_serializer=milvus_pb2.DescribeCollectionRequest.SerializeToString,
        )
        with pytest.raises(grpc.RpcError) as refused:
            ask(milvus_pb2.DescribeCollectionRequest(db_name=name, collection_name="books"), timeout=60)
    finally:
        channel.close()
        server.stop(grace_s=0)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    details = refused.value.details()
    assert details.startswith("PrivilegeDescribeCollection: permission deny to ada in the `")
    assert details.endswith("` database")
