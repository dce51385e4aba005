"""The roles of a cluster as processes on loopback, using running services."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from elanus.devcluster.process import ServiceProcess, free_port, http_ok

_READY_S = 180.0
"""All processes start at the same time, including a Spark driver."""
COORDINATORS = ("rootcoord", "datacoord", "indexcoord", "querycoord")


class RoleProcess(ServiceProcess):
    """`elanus run` with some roles. Ready when all of them serve; coordinators may stand by instead.

    ``observe_url``: its metrics port. ``address``: where clients reach it, if it has a proxy.
    """

    def __init__(
        self,
        name: str,
        roles: Sequence[str],
        config: Path,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        """``config``: a file of settings that all processes share; ``settings``: those of this process only.

        ``host``: where it listens; ``within``: a command that runs it, for tests that use another host.
        """
        metrics_port = free_port()
        self.observe_url = f"http://{host}:{metrics_port}"
        own = {
            "metrics.port": metrics_port,
            "metrics.host": host,
            "cluster.host": host,
            "proxy.host": host,
            "proxy.open_to_all": True,  # a development cluster elsewhere is meant to be
            "http.port": 0,
            **(settings or {}),
        }
        endpoints = {}
        self.address = ""
        if "proxy" in roles:
            own["proxy.port"] = port or free_port()
            self.address = f"{host}:{own['proxy.port']}"
            endpoints = {name: f"http://{self.address}"}
        assignments = [part for item in own.items() for part in ("--set", "{}={}".format(*item))]
        command = [sys.executable, "-m", "elanus", "run", *roles, "--config", str(config), *assignments]
        stands_by = set(roles) <= set(COORDINATORS)
        question = f"{self.observe_url}/{'healthz' if stands_by else 'readyz'}"
        super().__init__(
            name=name,
            command=[*within, *command],
            output=directory / f"{name}.log",
            ready=lambda: http_ok(question),
            endpoints=endpoints,
        )


def write_config(
    file: Path,
    *,
    etcd: str,
    nats: str,
    store_url: str,
    data_dir: Path,
    more: Mapping[str, object],
    prefix: str = "elanus",
) -> None:
    """Write the settings that all processes of a cluster share.

    ``more``: sections, by name. ``prefix``: separates the cluster from others on the same etcd and NATS.
    """
    sections: dict[str, object] = {
        "data_dir": str(data_dir),
        "meta": {"url": f"etcd://{etcd}/{prefix}"},
        "log": {"url": f"{nats}/{prefix}"},
        "storage": {"url": store_url},
    }
    file.write_text(yaml.safe_dump(sections | dict(more), sort_keys=False))


class Elanus:
    """A small cluster with every role: the coordinators in one process, and some nodes of each kind.

    ``port``: the port of the first proxy; further proxies use the ports that follow.
    """

    name = "elanus"

    def __init__(
        self,
        config: Path,
        directory: Path,
        *,
        proxies: int = 1,
        query_nodes: int = 2,
        data_nodes: int = 1,
        port: int = 19_530,
    ) -> None:
        self._processes = [RoleProcess("coordinators", COORDINATORS, config, directory)]
        for number in range(1, query_nodes + 1):
            self._processes.append(RoleProcess(f"query node {number}", ["querynode"], config, directory))
        for number in range(1, data_nodes + 1):
            self._processes.append(RoleProcess(f"data node {number}", ["datanode"], config, directory))
        for number in range(1, proxies + 1):
            self._processes.append(
                RoleProcess(f"proxy {number}", ["proxy"], config, directory, port=port + number - 1)
            )

    @property
    def endpoints(self) -> Mapping[str, str]:
        status = {"status": f"elanus status --url {self._processes[0].observe_url}"}
        return {name: url for p in self._processes for name, url in p.endpoints.items()} | status

    @property
    def processes(self) -> Sequence[ServiceProcess]:
        return self._processes

    def start(self) -> None:
        """Start all processes. Raises `ServiceFailed`."""
        try:
            for process in self._processes:
                process.launch()
            for process in self._processes:
                process.wait_ready(_READY_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()
