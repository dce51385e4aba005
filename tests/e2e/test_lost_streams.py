"""A log on NATS that has lost what is still needed: it is noticed, and refused as with the embedded log."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from harness import Server, until
from test_damaged_data import LOST, ROWS, WITHOUT_SPARK, read, refusal, rules_hit

from elanus.devcluster.nats import Nats
from elanus.nats.connection import NatsConnection
from elanus.nats.source import NatsSource
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2

pytestmark = [pytest.mark.e2e, pytest.mark.services]

NewServer = Callable[..., Server]
REFUSED_WITHIN_S = 10.0


def purge(nats: Nats, prefix: str, pchannel: str) -> None:
    """Remove all messages but the last: an operator's mistake, or a limit set on the stream by hand."""
    stream = f"{prefix}-{pchannel}"
    last = ask(nats, f"STREAM.INFO.{stream}")["state"]["last_seq"]
    ask(nats, f"STREAM.PURGE.{stream}", {"seq": last})


def remove(nats: Nats, prefix: str, pchannel: str) -> None:
    """Remove the whole stream, as the loss of the server's disk does."""
    ask(nats, f"STREAM.DELETE.{prefix}-{pchannel}")


def ask(nats: Nats, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    async def answered() -> dict[str, Any]:
        connection = await NatsConnection.open(NatsSource((nats.url,)), "operator")
        try:
            return await connection.api(subject, request)
        finally:
            await connection.close()

    return asyncio.run(answered())


@pytest.mark.parametrize("lose", [purge, remove])
def test_a_stream_that_has_lost_its_messages_concerns_only_who_needs_them(
    new_server: NewServer, nats_server: Nats, lose: Callable[[Nats, str, str], None]
) -> None:
    prefix = uuid.uuid4().hex
    server = new_server({**WITHOUT_SPARK, "log.url": f"{nats_server.url}/{prefix}"}).start()
    client = server.client()
    for name in ("rows", "others"):
        client.create_collection(name, dimension=4, consistency_level="Strong")
    client.insert("rows", [{"id": key, "vector": [float(key)] * 4} for key in range(ROWS)])
    client.insert("others", [{"id": 1, "vector": [1.0] * 4}])
    assert len(read(client)) == ROWS
    pchannel = channel_of(server, "rows")
    assert pchannel != channel_of(server, "others")
    server.stop()
    lose(nats_server, prefix, pchannel)
    client = server.start().client()
    text = until(lambda: refusal(client), REFUSED_WITHIN_S, "reads are refused")
    for part in (
        f"{pchannel}: position ",
        " is trimmed; the log begins at ",
        LOST,
        "restore the log from a copy",
    ):
        assert part in text, text
    began_s = time.monotonic()
    assert refusal(client, timeout=10) == text
    assert time.monotonic() - began_s < 1.0
    client.insert("others", [{"id": 2, "vector": [2.0] * 4}])
    assert len(client.query("others", "id >= 0")) == 2
    [status] = [c for c in server.status()["collections"] if c["name"] == "rows"]
    assert any(f"{pchannel}: position " in reason for reason in status["unreadable_logs"]), status
    assert "log-unreadable" in rules_hit(server)
    client.drop_collection("rows")
    assert "log-unreadable" not in rules_hit(server)
    client.create_collection("rows", dimension=4, consistency_level="Strong")
    client.insert("rows", [{"id": 7, "vector": [7.0] * 4}])
    assert read(client) == [(7, 7.0)]
    server.stop()
    assert "Traceback" not in server.output()


def channel_of(server: Server, name: str) -> str:
    """Return the collection's pchannel."""
    request = milvus_pb2.DescribeCollectionRequest(collection_name=name).SerializeToString()
    with grpc.insecure_channel(server.uri.removeprefix("http://")) as channel:
        answer = channel.unary_unary(f"/{SERVICE.full_name}/DescribeCollection")(request, timeout=10)
    [pchannel] = milvus_pb2.DescribeCollectionResponse.FromString(answer).physical_channel_names
    return str(pchannel)
