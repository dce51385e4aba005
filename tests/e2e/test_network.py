"""Roles on machines of their own, whose network fails: cut off past the lease, repaired, slow and lossy.

The machines are network namespaces; where those cannot be made the tests are skipped, and say so.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster
from harness import until
from machines import Machine, Network
from pymilvus import MilvusClient, MilvusException

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats

pytestmark = [pytest.mark.e2e, pytest.mark.services]

DIM = 8
ROWS = 500
TTL_S = 3
READS_AGAIN_S = 15.0
REJOINS_S = 30.0


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    try:
        network = Network()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield network
    network.close()


class Machines:
    """Coordinators and a proxy at home; two query nodes and a second proxy on machines of their own."""

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = network
        home = network.home
        self.etcd = Etcd(directory, host=home.address)
        self.nats = Nats(directory, host=home.address, sync_always=False)
        self.etcd.start()
        self.nats.start()
        self.cluster = Cluster(
            directory / "roles",
            etcd=self.etcd.endpoint,
            nats=self.nats.url,
            store_url=(directory / "objects").as_uri(),
            prefix="elanus",
            more={"session": {"ttl_s": TTL_S}},
        )
        self.cluster.add("coordinators", *COORDINATORS, machine=home)
        self.cluster.add("proxy1", machine=home)
        self.at: dict[str, Machine] = {}
        for name in ("querynode1", "querynode2", "proxy2"):
            self.at[name] = network.add()
            self.cluster.add(name, machine=self.at[name])
        self.cluster.wait()

    def close(self) -> None:
        self.cluster.close()
        self.nats.stop()
        self.etcd.stop()

    def cut(self, name: str) -> None:
        self.network.cut(self.at[name])

    def repair(self, name: str) -> None:
        self.network.repair(self.at[name])


COORDINATORS = ("rootcoord", "datacoord", "indexcoord", "querycoord")


@pytest.fixture(scope="module")
def machines(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    machines = Machines(network, tmp_path_factory.mktemp("network"))
    yield machines
    machines.close()


@pytest.fixture(scope="module")
def client(machines: Machines) -> MilvusClient:
    client = machines.cluster.client("proxy1")
    client.create_collection("rows", dimension=DIM, metric_type="L2", num_shards=2)
    vectors = np.random.default_rng(1).random((ROWS, DIM), dtype=np.float32)
    client.insert("rows", rows(vectors))
    return client


def rows(vectors: np.ndarray, first: int = 0) -> list[dict[str, object]]:
    return [{"id": first + n, "vector": vector.tolist()} for n, vector in enumerate(vectors)]


def count(client: MilvusClient) -> int:
    answer = client.query("rows", output_fields=["count(*)"], consistency_level="Strong", timeout=10)
    return int(answer[0]["count(*)"])


def counts_again(client: MilvusClient, deadline_s: float = READS_AGAIN_S) -> int:
    """The first count that is answered. The error asks clients to retry, and they do."""

    def asked() -> int | None:
        try:
            return count(client)
        except MilvusException:
            return None

    return int(until(lambda: asked() or 0, deadline_s, "reads are answered again", poll_s=0.2))


def test_a_query_node_that_is_cut_off_is_replaced_and_comes_back_as_another(
    machines: Machines, client: MilvusClient
) -> None:
    assert count(client) == ROWS
    before = ids(machines, "querynode")
    machines.cut("querynode1")
    began_s = time.monotonic()
    machines.cluster.until_seen("querynode", 1, READS_AGAIN_S)
    assert counts_again(client, READS_AGAIN_S - (time.monotonic() - began_s)) == ROWS
    machines.repair("querynode1")
    machines.cluster.until_seen("querynode", 2, REJOINS_S)
    assert len(ids(machines, "querynode") - before) == 1, "it has a new id"
    assert machines.cluster.processes["querynode1"].running, "its process went on"
    assert counts_again(client) == ROWS


def test_a_proxy_that_is_cut_off_acknowledges_nothing_and_holds_up_nobody(
    machines: Machines, client: MilvusClient
) -> None:
    """Its clients are on its machine: a write that it takes while it is cut off."""
    program = (
        "import sys; from pymilvus import MilvusClient\n"
        f"c = MilvusClient('http://{machines.cluster.processes['proxy2'].address}')\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "try:\n"
        "    c.insert('rows', [{'id': 10_000, 'vector': [0.5] * 8}], timeout=8)\n"
        "    print('acknowledged', flush=True)\n"
        "except Exception as error: print('refused', type(error).__name__, flush=True)\n"
    )
    command = [*machines.at["proxy2"].within, sys.executable, "-c", program]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    before = ids(machines, "proxy")
    machines.cut("proxy2")
    writer.stdin.write("go\n")
    writer.stdin.flush()
    machines.cluster.until_seen("proxy", 1, READS_AGAIN_S)
    found = counts_again(client)
    said = threading.Event()
    answer: list[str] = []

    def listen() -> None:
        assert writer.stdout is not None
        answer.append(writer.stdout.readline())
        said.set()

    threading.Thread(target=listen, daemon=True).start()
    assert said.wait(40), "its client gets an error"
    assert answer[0].startswith("refused"), answer
    machines.repair("proxy2")
    machines.cluster.until_seen("proxy", 2, REJOINS_S)
    assert len(ids(machines, "proxy") - before) == 1
    after = counts_again(client)
    assert found == ROWS
    assert after in (ROWS, ROWS + 1), "what was refused may have been written, once"
    other = machines.cluster.client("proxy2")
    assert counts_again(other) == after
    writer.wait(10)
    writer.stdin.close()
    writer.stdout.close()


def test_slow_and_lossy_cables_change_no_answer(machines: Machines, client: MilvusClient) -> None:
    """Packets are late and lost, both ways, for a query node and for a proxy that is written to."""
    far = [machines.at["querynode2"], machines.at["proxy2"]]
    before, expected = ids(machines, "querynode") | ids(machines, "proxy"), counts_again(client)
    lost = [machines.network.lost_frames(machine) for machine in far]
    for machine in far:
        machines.network.make_worse(machine, delay_ms=30, loss_percent=2)
    other = machines.cluster.client("proxy2")
    for turn in range(5):
        other.insert("rows", rows(np.ones((10, DIM), dtype=np.float32), first=20_000 + 10 * turn), timeout=30)
        expected += 10
        assert [count(c) for c in (client, other, client)] == [expected] * 3
    assert all(machines.network.lost_frames(m) > n for m, n in zip(far, lost, strict=True))
    for machine in far:
        machines.network.make_worse(machine, delay_ms=0, loss_percent=0)
    assert ids(machines, "querynode") | ids(machines, "proxy") == before, "a bad cable costs nobody the lease"


def ids(machines: Machines, role: str) -> set[str]:
    found = {r["role"] for r in machines.cluster.status()["roles"]}
    return {name for name in found if name.split()[0] == role and " " in name}
