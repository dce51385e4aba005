"""One NATS server with JetStream on loopback: the message log and the query channels of a cluster.

``sync_always`` makes it write every message to stable storage before it acknowledges. By default NATS
syncs every two minutes: an acknowledged message then survives the death of the process, but not of
the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elanus.devcluster.process import ServiceProcess, free_port, http_ok
from elanus.devcluster.programs import find_nats

_CONFIGURATION = """\
server_name: {name}
host: "{host}"
port: {port}
http: "127.0.0.1:{monitor_port}"
max_payload: {max_payload_bytes}
{authorization}
jetstream {{
  store_dir: "{store}"
  max_memory_store: 1GB
  max_file_store: {store_max_mb}MB
  sync_interval: {sync_interval}
}}
{cluster}
"""
_CLUSTER = """cluster {{
  name: elanus-dev
  host: "{host}"
  port: {route_port}
  routes: [{routes}]
}}
"""


class Nats(ServiceProcess):
    """``url``: the address for clients. Streams in files survive a restart; those in memory do not."""

    def __init__(
        self,
        directory: Path,
        *,
        sync_always: bool = True,
        max_payload_bytes: int = 1024 * 1024,
        store_max_mb: int = 1_000_000,
        password: str = "",
        host: str = "127.0.0.1",
        name: str = "elanus-dev",
        routes: Sequence[int] = (),
    ) -> None:
        """``password``: of the user ``elanus``; without one, anyone on this machine may connect.

        ``routes``: for one of several servers, each with its own ``name``: the ports by which they reach
        each other, its own first. The server is ready when enough of them are running to have a leader.
        """
        port, monitor_port = free_port(), free_port()
        self.url = f"nats://{host}:{port}"
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "nats.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                host=host,
                port=port,
                monitor_port=monitor_port,
                store=directory / "nats",
                max_payload_bytes=max_payload_bytes,
                store_max_mb=store_max_mb,
                authorization=f'authorization {{ user: elanus, password: "{password}" }}' if password else "",
                sync_interval="always" if sync_always else '"2m"',
                name=name,
                cluster=_cluster(host, routes) if routes else "",
            )
        )
        health = f"http://127.0.0.1:{monitor_port}/healthz{'' if routes else '?js-enabled-only=true'}"
        super().__init__(
            name="nats",
            command=[find_nats(), "--config", str(configuration)],
            output=directory / "nats.log",
            ready=lambda: http_ok(health, "ok"),
            endpoints={"nats": self.url},
        )


def _cluster(host: str, routes: Sequence[int]) -> str:
    urls = ", ".join(f"nats://{host}:{port}" for port in routes)
    return _CLUSTER.format(host=host, route_port=routes[0], routes=urls)
