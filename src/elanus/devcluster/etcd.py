"""One etcd member on loopback: metadata, sessions and leases of a cluster."""

from __future__ import annotations

from pathlib import Path

from elanus.devcluster.process import ServiceProcess, free_port, http_ok
from elanus.devcluster.programs import find_etcd


class Etcd(ServiceProcess):
    """``endpoint`` is ``HOST:PORT``. Its data lies below ``directory`` and outlives a restart."""

    def __init__(self, directory: Path, *, host: str = "127.0.0.1") -> None:
        port, peer_port = free_port(), free_port()
        client, peer = f"http://{host}:{port}", f"http://127.0.0.1:{peer_port}"
        self.endpoint = f"{host}:{port}"
        command = [
            find_etcd(),
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--logger=zap",
            "--log-level=warn",
        ]
        super().__init__(
            name="etcd",
            command=command,
            output=directory / "etcd.log",
            ready=lambda: http_ok(f"{client}/health", '"true"'),
            endpoints={"etcd": self.endpoint},
        )
