"""A log that is put back to an older copy while a cluster runs: each of its processes notices."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cluster import Cluster
from harness import until
from nats_streams import last_of, remove, stopped
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException
from unreadable_logs import ROWS, create, pchannel_of_collection, read

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.roles import COORDINATORS

pytestmark = [pytest.mark.e2e, pytest.mark.services]

NOTICED_WITHIN_S = 20.0
AT_ONCE_S = 30.0
"""A read that waits does so for as long as its client lets it."""
PREFIX = uuid.uuid4().hex


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    server = Nats(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def cluster(tmp_path: Path, etcd_server: Etcd, nats: Nats) -> Iterator[Cluster]:
    more: dict[str, dict[str, object]] = {"pipeline": {"enabled": False}, "rootcoord": {"dml_channel_num": 2}}
    store = f"file://{tmp_path / 'store'}"
    directory = tmp_path / "roles"
    cluster = Cluster(
        directory, etcd=etcd_server.endpoint, nats=nats.url, store_url=store, prefix=PREFIX, more=more
    )
    cluster.add("coordinators", *COORDINATORS)
    for node in ("querynode1", "datanode1", "proxy1"):
        cluster.add(node)
    try:
        yield cluster.wait()
    finally:
        cluster.close()


def test_it_concerns_only_the_collections_on_that_channel(
    cluster: Cluster, nats: Nats, tmp_path: Path
) -> None:
    """``first`` shares its channel with ``rows``, which the copy does not know; ``others`` is on another."""
    client, copy = cluster.client(), tmp_path / "copy"
    address = cluster.processes["proxy1"].address
    for name in ("first", "others"):
        create(client, name, range(5))
    pchannel = pchannel_of_collection(address, "first")
    assert pchannel != pchannel_of_collection(address, "others")
    [stream] = (tmp_path / "nats" / "nats").glob(f"**/{PREFIX}-{pchannel}")
    with stopped(nats):
        shutil.copytree(stream, copy)
    create(client, "rows", range(ROWS))
    assert len(read(client)) == ROWS
    assert pchannel_of_collection(address, "rows") == pchannel
    with stopped(nats):
        shutil.rmtree(stream)
        shutil.copytree(copy, stream)
    end = last_of(nats, PREFIX, pchannel)
    until(lambda: pchannel in refusals(cluster), NOTICED_WITHIN_S, "the older copy is noticed")
    for name in ("first", "rows"):
        with pytest.raises(MilvusException, match=f"nothing is written to {pchannel}: position "):
            client.insert(name, [{"id": 9, "vector": [1.0] * 4}], timeout=10)
        expect_reads_refused(client, name, f"{pchannel}: position ", "an older copy was put in its place")
    assert last_of(nats, PREFIX, pchannel) == end, "the copy is as it was"
    client.insert("others", [{"id": 1000, "vector": [2.0] * 4}])
    assert len(client.query("others", "id >= 0")) == 6
    remove(nats, PREFIX, pchannel)
    until(lambda: not refusals(cluster), NOTICED_WITHIN_S, "the channel is used again")
    for name in ("first", "rows"):
        client.drop_collection(name)
    create(client, "rows", range(7, 8))
    assert read(client) == [(7, 7.0)]


def refusals(cluster: Cluster) -> dict[str, str]:
    """Why nothing is written, by pchannel."""
    return {c["pchannel"]: c["refusal"] for c in cluster.status()["channels"] if c["refusal"]}


def expect_reads_refused(client: MilvusClient, name: str, *parts: str) -> None:
    """The first ones may meet query channels that NATS has lost with its memory; the next do not wait."""
    until(
        lambda: all(part in refusal_of(client, name) for part in parts), NOTICED_WITHIN_S, "reads are refused"
    )
    began_s = time.monotonic()
    assert refusal_of(client, name, 2 * AT_ONCE_S)
    assert time.monotonic() - began_s < AT_ONCE_S


def refusal_of(client: MilvusClient, name: str, timeout_s: float = 10) -> str:
    try:
        client.query(name, "id >= 0", timeout=timeout_s, retry_times=0)
    except (MilvusException, grpc.RpcError) as error:
        return str(error)
    return ""
