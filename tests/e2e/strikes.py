"""Faults of a cluster under load: strikes, each with its repair, and a stage to try them on.

A strike hits one process, or one service. `Stage.strike` carries one out while the load runs: it waits until
every proxy that still runs serves reads and writes again, repairs what is broken, waits again, and says what
the whole was like.
"""

from __future__ import annotations

import base64
import re
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cluster import Cluster
from cluster_load import READ, WRITE, ClusterLoad, Span
from harness import until

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.process import ServiceProcess
from elanus.devcluster.roles import COORDINATORS
from elanus.devcluster.swift import Swift
from elanus.meta.session import PREFIX, SessionInfo

STANDBY = "standby"
PROXIES = ("proxy1", "proxy2")
QUERY_NODES = 3
TTL_S = 4
SETTLED_REQUESTS = 5
REJOIN_DEADLINE_S = 60.0
OUTAGE_S = 10.0
START_DEADLINE_S = 240.0
"""The time for a data node with its Spark to start, on a machine that has much else to do."""
QUICK: Mapping[str, Mapping[str, object]] = {
    "session": {"ttl_s": TTL_S},
    "datacoord": {"assignment_expiration_ms": 2000},
}


@dataclass(frozen=True, slots=True)
class Strike:
    """``how``: carries it out on a role's process or a service, and returns its repair.

    ``reads_s``, ``writes_s``: how long the surviving proxies may go without a success. Not those struck.
    """

    name: str
    victim: str
    how: Callable[[Stage, str], Callable[[], None]]
    reads_s: float = 15.0
    writes_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Result:
    """``hit``: from the strike to its repair, ``span``: to the end. ``victim``: the process."""

    strike: Strike
    victim: str
    hit: Span
    span: Span
    survivors: tuple[str, ...]

    @property
    def reads_s(self) -> float:
        return self.hit.gap_s(READ, *self.survivors)

    @property
    def writes_s(self) -> float:
        return self.hit.gap_s(WRITE, *self.survivors)


class Stage:
    """Services, a cluster with a standby for every coordinator, and a load."""

    def __init__(self, directory: Path) -> None:
        self.etcd = Etcd(directory / "etcd")
        self.nats = Nats(directory / "nats", sync_always=False)
        self.swift = Swift(directory / "s3")
        self._directory = directory
        self.cluster: Cluster
        self.load: ClusterLoad

    def start(self, seed: int) -> Stage:
        """``seed``: of the load."""
        self.etcd.start()
        self.nats.start()
        self.swift.start()
        prefix = uuid.uuid4().hex
        self.cluster = Cluster(
            self._directory / "roles",
            etcd=self.etcd.endpoint,
            nats=self.nats.url,
            store_url=self.swift.store_url(prefix),
            prefix=prefix,
            more=QUICK,
        )
        self.cluster.start(proxies=len(PROXIES), query_nodes=QUERY_NODES)
        self.cluster.add(STANDBY, *COORDINATORS)
        self.cluster.wait()
        uris = {name: f"http://{self.cluster.processes[name].address}" for name in PROXIES}
        self.load = ClusterLoad(uris, seed)
        return self

    def close(self) -> None:
        if hasattr(self, "load"):
            self.load.close()
        if hasattr(self, "cluster"):
            self.cluster.close()
        self.swift.stop()
        self.nats.stop()
        self.etcd.stop()

    def find(self, victim: str) -> str:
        """The process to strike: of a coordinator's role, the one where it is active; of the query nodes, one
        that serves something."""
        if victim == "querynode":
            return until(self._serving, REJOIN_DEADLINE_S, "query nodes serve", poll_s=0.1)
        if victim not in COORDINATORS:
            return victim

        def active() -> str | None:
            at = {s.address for s in self.sessions() if s.role == victim}
            return next((n for n in (victim, STANDBY) if self.address(n) in at), None)

        return until(active, REJOIN_DEADLINE_S, f"{victim} is active somewhere", poll_s=0.1)

    def _serving(self) -> str | None:
        ids = self.load.serving()
        names = [name for name in self.cluster.processes if name.startswith("querynode")]
        return next((name for name in names if self.node_ids(name) & ids), None)

    def sessions(self) -> list[SessionInfo]:
        """As etcd has them now."""
        first = f"{self.cluster.prefix}/{PREFIX}"
        asked = {"key": _base64(first), "range_end": _base64(first[:-1] + chr(ord(first[-1]) + 1))}
        request = urllib.request.Request(
            f"http://{self.etcd.endpoint}/v3/kv/range", data=msgspec.json.encode(asked), method="POST"
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            entries = msgspec.json.decode(answer.read()).get("kvs", [])
        values = [base64.b64decode(e["value"]) for e in entries]
        return [msgspec.json.decode(v, type=SessionInfo) for v in values if v.startswith(b"{")]

    def address(self, name: str) -> str:
        """Where the roles of a process are reached: it says so when it starts."""
        output = self.cluster.processes[name].output.read_text(errors="replace")
        return re.findall(r"^Elanus \S+ runs .* at ([\d.:]+)", output, re.MULTILINE)[-1]

    def node_ids(self, name: str) -> set[int]:
        return {s.node_id for s in self.sessions() if s.address == self.address(name)}

    def process(self, name: str) -> ServiceProcess:
        services: dict[str, ServiceProcess] = {"etcd": self.etcd, "nats": self.nats, "swift": self.swift}
        return services.get(name) or self.cluster.processes[name]

    def strike(self, strike: Strike, requests: int = 20) -> Result:
        """While the load runs."""
        victim = self.find(strike.victim)
        survivors = tuple(name for name in PROXIES if name != victim)
        since_s = self.load.mark()
        repair = strike.how(self, victim)
        self.load.wait_for(requests, self.load.mark(), *survivors)
        hit = self.load.span(since_s)
        repair()
        self.load.wait_for(SETTLED_REQUESTS, self.load.mark())
        return Result(strike, victim, hit, self.load.span(since_s), survivors)


def kill(stage: Stage, name: str) -> Callable[[], None]:
    """`kill -9`; repaired by starting it again."""
    stage.process(name).kill()
    return lambda: start(stage.process(name))


def restart(stage: Stage, name: str) -> Callable[[], None]:
    """`kill -9` and a start at once, as a supervisor does."""
    stage.process(name).kill()
    start(stage.process(name))
    return lambda: None


def roll(stage: Stage, name: str) -> Callable[[], None]:
    """An orderly stop and a start, as in a rolling restart."""
    stage.process(name).stop()
    start(stage.process(name))
    return lambda: None


def pause(stage: Stage, name: str) -> Callable[[], None]:
    """SIGSTOP past the lease; repaired by SIGCONT. Its process lives on, and its role joins again."""
    process = stage.process(name)
    pid, former = process.pid, stage.node_ids(name)
    process.pause()

    def resume() -> None:
        until(lambda: not stage.node_ids(name), REJOIN_DEADLINE_S, f"{name} is counted out", poll_s=0.1)
        process.resume()
        until(lambda: _serves(process), REJOIN_DEADLINE_S, f"{name} has joined again", poll_s=0.1)
        assert process.pid == pid, f"{name} has ended"
        assert not stage.node_ids(name) & former, f"{name} goes on under its old id"

    return resume


def outage(stage: Stage, name: str) -> Callable[[], None]:
    """A service that does not answer for a while, and then does again by itself."""
    process = stage.process(name)
    process.pause()
    time.sleep(OUTAGE_S)
    process.resume()
    return lambda: None


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def start(process: ServiceProcess) -> None:
    process.launch()
    process.wait_ready(START_DEADLINE_S)


def _serves(process: ServiceProcess) -> bool:
    try:
        return process.ready()
    except OSError:
        return False


STRIKES = (
    Strike("kill a query node", "querynode", kill),
    Strike("kill a proxy", "proxy1", kill, reads_s=10, writes_s=10),
    *(Strike(f"kill {role}", role, kill, reads_s=10, writes_s=10) for role in COORDINATORS),
    Strike("restart NATS", "nats", restart),
    Strike("restart etcd", "etcd", restart),
    Strike(f"object store away for {OUTAGE_S:g} s", "swift", outage),
    *(
        Strike(f"pause {what}", victim, pause)
        for what, victim in (
            ("a proxy", "proxy2"),
            ("querycoord", "querycoord"),
            ("rootcoord", "rootcoord"),
            ("a query node", "querynode"),
        )
    ),
    Strike("kill the data node", "datanode1", kill),
)
ROLLING = tuple(
    Strike(f"roll {name}", name, roll)
    for name in ("proxy1", "proxy2", "querynode1", "querynode2", "querynode3", *COORDINATORS, "datanode1")
)
