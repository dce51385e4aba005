"""A proxy and a query node behind cables that are slow, lossy, cut for a moment, or dead for longer.

Every connection of these two goes through a relay: to etcd, to NATS, and the calls of the others to them.
The network faults of kernels are tested in `test_network.py`, on machines that have them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster
from harness import until
from pymilvus import MilvusClient, MilvusException
from relay import GOOD, Quality, Relay

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.process import free_port
from elanus.devcluster.roles import COORDINATORS

pytestmark = [pytest.mark.e2e, pytest.mark.services]

DIM = 8
ROWS = 300
TTL_S = 4
BAD = Quality(delay_ms=10, jitter_ms=10, loss_percent=2)
MOMENT_S = 1.0
FAR = "127.0.0.2"
"""Where the others find the two: the relays listen there, on the ports of the roles."""
AGAIN_S = 20.0
ATTEMPTS = 20


class Cabled:
    """Coordinators, a proxy and a query node side by side; a second one of each behind cables."""

    def __init__(self, directory: Path, etcd: Etcd, nats: Nats) -> None:
        prefix = uuid.uuid4().hex
        self.etcd, self.nats = etcd, nats
        self.cables: dict[str, list[Relay]] = {}
        self.cluster = Cluster(
            directory,
            etcd=etcd.endpoint,
            nats=nats.url,
            store_url=(directory / "objects").as_uri(),
            prefix=prefix,
            more={"session": {"ttl_s": TTL_S}},
        )
        self.cluster.add("coordinators", *COORDINATORS)
        for name in ("querynode1", "proxy1"):
            self.cluster.add(name)
        for name in ("querynode2", "proxy2"):
            port = free_port()
            to_etcd, to_nats = Relay(etcd.endpoint), Relay(nats.url.removeprefix("nats://"), seed=2)
            here = Relay(f"127.0.0.1:{port}", host=FAR, port=port, seed=3)
            self.cables[name] = [to_etcd, to_nats, here]
            self.cluster.add(
                name,
                meta__url=f"etcd://{to_etcd.address}/{prefix}",
                log__url=f"nats://{to_nats.address}/{prefix}",
                cluster__port=port,
                cluster__advertise=FAR,
            )
        self.cluster.wait()

    def close(self) -> None:
        self.cluster.close()
        for relay in self.all():
            relay.close()

    def all(self) -> list[Relay]:
        return [relay for relays in self.cables.values() for relay in relays]

    def ids(self) -> set[str]:
        return {r["role"] for r in self.cluster.status()["roles"] if " " in r["role"]}


@pytest.fixture(scope="module")
def cabled(
    tmp_path_factory: pytest.TempPathFactory, etcd_server: Etcd, nats_server: Nats
) -> Iterator[Cabled]:
    cabled = Cabled(tmp_path_factory.mktemp("cables") / "roles", etcd_server, nats_server)
    yield cabled
    cabled.close()


@pytest.fixture(scope="module")
def near(cabled: Cabled) -> MilvusClient:
    client = cabled.cluster.client("proxy1")
    client.create_collection("rows", dimension=DIM, metric_type="L2", num_shards=2)
    return client


@pytest.fixture(scope="module")
def far(cabled: Cabled, near: MilvusClient) -> MilvusClient:
    return cabled.cluster.client("proxy2")


def rows(first: int, count: int) -> list[dict[str, object]]:
    vectors = np.random.default_rng(first).random((count, DIM), dtype=np.float32)
    return [{"id": first + n, "vector": vector.tolist()} for n, vector in enumerate(vectors)]


def count(client: MilvusClient) -> int:
    answer = client.query("rows", output_fields=["count(*)"], consistency_level="Strong", timeout=10)
    return int(answer[0]["count(*)"])


def counted_again(client: MilvusClient) -> int:
    def asked() -> int:
        try:
            return count(client)
        except MilvusException:
            return 0

    return until(asked, AGAIN_S, "reads are answered again", poll_s=0.1)


def written(client: MilvusClient, first: int, number: int) -> None:
    """Repeated until it is acknowledged, as an upsert when nobody knows what became of it."""
    write = client.insert
    for _ in range(ATTEMPTS):
        try:
            write("rows", rows(first, number), timeout=10)
        except MilvusException:
            write = client.upsert
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"rows from {first} on were not taken")


def test_slow_and_lossy_cables_change_no_answer(
    cabled: Cabled, near: MilvusClient, far: MilvusClient
) -> None:
    before = cabled.ids()
    for relay in cabled.all():
        relay.set(BAD)
    for turn in range(3):
        for number, client in enumerate((near, far)):
            written(client, (2 * turn + number) * ROWS, ROWS)
            assert [count(c) for c in (far, near)] == [(2 * turn + number + 1) * ROWS] * 2
    found = far.search("rows", [row["vector"] for row in rows(0, 5)], limit=1, consistency_level="Strong")
    assert [hits[0]["id"] for hits in found] == list(range(5))
    assert all(relay.carried_bytes for relay in cabled.all()), "it went through the cables"
    assert cabled.ids() == before, "a slow cable costs nobody the lease"


def test_cables_cut_for_a_moment_lose_and_double_nothing(
    cabled: Cabled, near: MilvusClient, far: MilvusClient
) -> None:
    before, there = cabled.ids(), counted_again(near)
    for relay in cabled.all():
        relay.set(GOOD)
    for turn, relay in enumerate(cabled.all()):
        written(far, 10_000 + 100 * turn, 50)
        relay.cut() if turn % 2 else relay.stall()
        time.sleep(MOMENT_S)  # within the lease
        relay.repair()
        written(far, 10_050 + 100 * turn, 50)
    expected = there + 100 * len(cabled.all())
    assert [counted_again(client) for client in (near, far)] == [expected] * 2
    assert cabled.ids() == before


def test_a_node_whose_cables_are_dead_past_its_lease_is_replaced_and_comes_back(
    cabled: Cabled, near: MilvusClient
) -> None:
    before, expected = cabled.ids(), counted_again(near)
    for relay in cabled.cables["querynode2"]:
        relay.stall()
    cabled.cluster.until_seen("querynode", 1, AGAIN_S)
    assert counted_again(near) == expected
    for relay in cabled.cables["querynode2"]:
        relay.repair()
    cabled.cluster.until_seen("querynode", 2, AGAIN_S)
    assert len({i for i in cabled.ids() - before if i.startswith("querynode")}) == 1, "under another id"
    assert counted_again(near) == expected
