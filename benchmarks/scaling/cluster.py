"""A cluster of processes for measurements: etcd, NATS, a directory for objects, and the roles."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from elanus.cli import remote
from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.roles import COORDINATORS, RoleProcess, write_config

READY_S = 180.0


class Cluster:
    """Its processes by name; the coordinators are one."""

    def __init__(self, etcd: Etcd, nats: Nats, processes: dict[str, RoleProcess]) -> None:
        self.etcd = etcd
        self.nats = nats
        self.processes = processes

    @property
    def uri(self) -> str:
        return f"http://{self.processes['proxy'].address}"

    def status(self) -> dict[str, Any]:
        answer = remote.get(self.processes["proxy"].observe_url + "/status")
        return msgspec.json.decode(answer, type=dict[str, Any])


@contextmanager
def running(query_nodes: int, more: Mapping[str, Mapping[str, object]]) -> Iterator[Cluster]:
    """A fresh cluster with so many query nodes and these settings, ended with the block."""
    with tempfile.TemporaryDirectory(prefix="elanus-scaling-") as name, ExitStack() as stack:
        directory = Path(name)
        etcd, nats = Etcd(directory), Nats(directory)
        for service in (etcd, nats):
            stack.callback(service.stop)
            service.start()
        config = directory / "cluster.yaml"
        write_config(
            config,
            etcd=etcd.endpoint,
            nats=nats.url,
            store_url=(directory / "objects").as_uri(),
            data_dir=directory / "data",
            more=more,
        )
        plan = {"coordinators": COORDINATORS, "proxy": ("proxy",), "data node": ("datanode",)}
        plan |= {f"query node {n}": ("querynode",) for n in range(1, query_nodes + 1)}
        processes = {name: RoleProcess(name, roles, config, directory) for name, roles in plan.items()}
        for process in processes.values():
            stack.callback(process.stop)
            process.launch()
        for process in processes.values():
            process.wait_ready(READY_S)
        yield Cluster(etcd, nats, processes)
