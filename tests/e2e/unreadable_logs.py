"""A collection whose log cannot be read, as clients and operators see it: the checks of several tests.

The tests have two collections, ``rows`` and ``others``, of which ``rows`` needs what its log has lost.
"""

from __future__ import annotations

import time

import grpc
from harness import Server, until
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from elanus.cli import remote
from elanus.cli.doctor import findings_in
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2

WITHOUT_SPARK = {"pipeline.enabled": "false"}
ROWS = 200
REFUSED_WITHIN_S = 10.0
LOST = "the log has lost what is still needed"


def create(client: MilvusClient, name: str, keys: range) -> None:
    client.create_collection(name, dimension=4, consistency_level="Strong")
    client.insert(name, [{"id": key, "vector": [float(key)] * 4} for key in keys])


def read(client: MilvusClient) -> list[tuple[int, float]]:
    found = client.query("rows", "id >= 0", output_fields=["id", "vector"], limit=2 * ROWS, timeout=10)
    return [(row["id"], float(row["vector"][0])) for row in found]


def refusal(client: MilvusClient, timeout: float = 2.0) -> str:
    """Return why a read of the rows is refused; "" if it waits instead until its deadline."""
    try:
        client.query("rows", "id >= 0", timeout=timeout, retry_times=0)
    except MilvusException as error:
        return error.message if "cannot be read" in error.message else ""
    except grpc.RpcError:
        return ""
    raise AssertionError("rows were answered without their log")


def expect_only_rows_refused(server: Server, client: MilvusClient, pchannel: str, *parts: str) -> None:
    """Reads of ``rows`` are refused at once, with the parts in the text; ``others`` is as before, but has a
    new row."""
    text = until(lambda: refusal(client), REFUSED_WITHIN_S, "reads are refused")
    for part in (f"{pchannel}: position ", *parts):
        assert part in text, text
    began_s = time.monotonic()
    assert refusal(client, timeout=10) == text
    assert time.monotonic() - began_s < 1.0
    before = len(client.query("others", "id >= 0"))
    client.insert("others", [{"id": 1000, "vector": [2.0] * 4}])
    assert len(client.query("others", "id >= 0")) == before + 1
    [status] = [c for c in server.status()["collections"] if c["name"] == "rows"]
    assert any(f"{pchannel}: position " in reason for reason in status["unreadable_logs"]), status
    assert "log-unreadable" in rules_hit(server)


def expect_dropped_and_created_again(server: Server, client: MilvusClient) -> None:
    """Once ``rows`` is dropped nothing is wrong, and the name can be used again. Stops the server."""
    client.drop_collection("rows")
    assert not rules_hit(server) & {"log-unreadable", "channel-rewound"}
    create(client, "rows", range(7, 8))
    assert read(client) == [(7, 7.0)]
    server.stop()
    assert "Traceback" not in server.output()


def rules_hit(server: Server) -> set[str]:
    """Return the rules of `elanus doctor` that find something."""
    return {one.rule for one in findings_in(remote.get(server.observe_url + "/status"))}


def channel_of(server: Server, name: str) -> str:
    """Return the collection's pchannel."""
    return pchannel_of_collection(server.uri.removeprefix("http://"), name)


def pchannel_of_collection(address: str, name: str) -> str:
    """Return the pchannel of a collection with one shard, as the proxy at this address names it."""
    request = milvus_pb2.DescribeCollectionRequest(collection_name=name).SerializeToString()
    with grpc.insecure_channel(address) as channel:
        answer = channel.unary_unary(f"/{SERVICE.full_name}/DescribeCollection")(request, timeout=10)
    [pchannel] = milvus_pb2.DescribeCollectionResponse.FromString(answer).physical_channel_names
    return str(pchannel)
