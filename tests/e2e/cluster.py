"""A cluster under test: every role a process of its own, which can be killed, paused, and started again.

It stands on services that the test brings. Processes are named; what each prints goes to a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from harness import until
from machines import LOOPBACK, Machine
from pymilvus import MilvusClient
from spark_classes import lend

from elanus.cli import remote
from elanus.devcluster.roles import COORDINATORS, RoleProcess, write_config

READY_DEADLINE_S = 120.0
QUICK: Mapping[str, Mapping[str, object]] = {
    "logging": {"level": "info"},
    "indexcoord": {"index_rows_min": 200},
    "pipeline": {"spark_master": "local[2]", "driver_memory_mb": 512, "nice": 0},
}


class Cluster:
    """``etcd``: its endpoint; ``nats``: its URL; ``prefix``: what sets this cluster apart on both."""

    running: list[Cluster] = []  # noqa: RUF012 - every cluster that was made, for the report of a failure

    def __init__(
        self,
        directory: Path,
        *,
        etcd: str,
        nats: str,
        store_url: str,
        prefix: str,
        more: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.directory = directory
        self.prefix = prefix
        directory.mkdir(parents=True)
        self._config = directory / "cluster.yaml"
        sections = {**QUICK, **{n: {**QUICK.get(n, {}), **section} for n, section in (more or {}).items()}}
        write_config(
            self._config,
            etcd=etcd,
            nats=nats,
            prefix=prefix,
            store_url=store_url,
            data_dir=directory / "data",
            more=sections,
        )
        self.processes: dict[str, RoleProcess] = {}
        self._clients: list[MilvusClient] = []
        Cluster.running.append(self)

    def add(self, name: str, *roles: str, machine: Machine = LOOPBACK, **settings: object) -> RoleProcess:
        """Start a process without waiting for it. ``roles``: none stands for its name without the number.
        ``settings``: with ``__`` for the dot."""
        assignments = {key.replace("__", "."): value for key, value in settings.items()}
        roles = roles or (name.rstrip("0123456789"),)
        if "datanode" in roles:
            self._lend_classes("-".join(roles))
        process = RoleProcess(
            name,
            roles,
            self._config,
            self.directory,
            assignments,
            host=machine.address,
            within=machine.within,
        )
        self.processes[name] = process
        process.launch()
        return process

    def _lend_classes(self, kind: str) -> None:
        """To the workspace that the next process of this kind takes: `elanus.server.cluster.workspace`."""
        number = 1 + len(list((self.directory / "data").glob(f"{kind}-*")))
        lend(self.directory / "data" / f"{kind}-{number}" / "scratch")

    def start(self, *, proxies: int = 1, query_nodes: int = 2, data_nodes: int = 1) -> Cluster:
        """All coordinators, and so many nodes, each in a process of its own. Returns when all serve."""
        for role in COORDINATORS:
            self.add(role)
        for role, count in (("querynode", query_nodes), ("proxy", proxies), ("datanode", data_nodes)):
            for number in range(1, count + 1):
                self.add(f"{role}{number}")
        return self.wait()

    def wait(self) -> Cluster:
        for process in self.processes.values():
            process.wait_ready(READY_DEADLINE_S)
        return self

    def client(self, proxy: str = "proxy1", **arguments: Any) -> MilvusClient:
        client = MilvusClient(f"http://{self.processes[proxy].address}", **arguments)
        self._clients.append(client)
        return client

    def status(self, name: str = "proxy1") -> dict[str, Any]:
        """The answer of a process's ``/status``, about the whole cluster."""
        answer = remote.get(self.processes[name].observe_url + "/status")
        return msgspec.json.decode(answer, type=dict[str, Any])

    def until_seen(self, role: str, count: int, deadline_s: float = 30.0) -> None:
        """Until the sessions show so many of a role."""
        until(lambda: self.seen(role) == count, deadline_s, f"{count} of {role} have sessions", poll_s=0.1)

    def seen(self, role: str) -> int:
        return sum(r["role"].split()[0].rstrip("0123456789") == role for r in self.status()["roles"])

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for process in reversed(self.processes.values()):
            process.stop()

    def output(self) -> str:
        """The end of what each process has printed."""
        return "\n".join(
            f"-- {name}\n{process.output.read_text(errors='replace')[-1500:]}"
            for name, process in self.processes.items()
            if process.output.exists()
        )
