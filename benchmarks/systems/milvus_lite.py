"""milvus-lite 3.2.2: Milvus's own small server in Python, from PyPI."""

from __future__ import annotations

from benchmarks.environments import MILVUS_LITE
from benchmarks.systems.served import HOST, ServedSystem


class MilvusLiteSystem(ServedSystem):
    """One Python process."""

    name = "milvus-lite"

    @property
    def version(self) -> str:
        """As pinned in its environment."""
        return "3.2.2 (pymilvus 3.0.2)"

    def server_command(self) -> list[str]:
        """``milvus-lite server`` of its environment."""
        program = MILVUS_LITE.program("milvus-lite")
        return [
            program,
            "server",
            "--data-dir",
            str(self._place.data),
            "--host",
            HOST,
            "--port",
            str(self._port),
        ]

    def worker_python(self) -> str:
        """Its environment's interpreter."""
        return MILVUS_LITE.program("python")
