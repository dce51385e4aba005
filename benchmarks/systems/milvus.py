"""Milvus 2.3.5, the real server, from PyPI's package ``milvus`` with the client of its generation.

It listens on every interface and on the fixed port 9091, so it and its clients live in a network namespace of
their own. It ignores SIGTERM for minutes and is killed instead.
"""

from __future__ import annotations

from benchmarks.environments import MILVUS
from benchmarks.systems.namespace import NetworkNamespace
from benchmarks.systems.protocol import Place
from benchmarks.systems.served import ServedSystem


class MilvusSystem(ServedSystem):
    """A Python launcher and the Milvus binary below it."""

    name = "milvus"
    stop_grace_s = 0.0

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._namespace = NetworkNamespace()

    @property
    def version(self) -> str:
        """As pinned in its environment."""
        return "2.3.5 (pymilvus 2.3.6)"

    def server_command(self) -> list[str]:
        """``milvus-server`` of its environment; the binary is unpacked into the data directory."""
        program = MILVUS.program("milvus-server")
        return [program, "--data", str(self._place.data), "--proxy-port", str(self._port)]

    def worker_python(self) -> str:
        """Its environment's interpreter."""
        return MILVUS.program("python")

    def inside(self, command: list[str]) -> list[str]:
        """Run it in the namespace."""
        return self._namespace.inside(command)

    def close(self) -> None:
        """Stop the server, then let go of the namespace."""
        try:
            super().close()
        finally:
            self._namespace.close()
