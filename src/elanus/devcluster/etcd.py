"""One etcd member on loopback: metadata, sessions and leases of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elanus.devcluster.process import ServiceProcess, free_port, http_ok
from elanus.devcluster.programs import find_etcd


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: a certificate, its key, and the CA."""

    cert: Path
    key: Path
    ca: Path


class Etcd(ServiceProcess):
    """``endpoint`` is ``HOST:PORT``. The data is stored below ``directory`` and survives a restart."""

    def __init__(
        self, directory: Path, *, host: str = "127.0.0.1", certificates: Certificates | None = None
    ) -> None:
        """``certificates``: accept only clients that have a certificate of the same CA."""
        port, peer_port = free_port(), free_port()
        scheme = "https" if certificates else "http"
        client, peer = f"{scheme}://{host}:{port}", f"http://127.0.0.1:{peer_port}"
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
        metrics = client
        if certificates:
            metrics = f"http://{host}:{free_port()}"
            command += [
                f"--cert-file={certificates.cert}",
                f"--key-file={certificates.key}",
                f"--trusted-ca-file={certificates.ca}",
                "--client-cert-auth",
                f"--listen-metrics-urls={metrics}",
            ]
        super().__init__(
            name="etcd",
            command=command,
            output=directory / "etcd.log",
            ready=lambda: http_ok(f"{metrics}/health", '"true"'),
            endpoints={"etcd": self.endpoint},
        )
