"""The systems that can be measured, by name, and how each is made ready."""

from __future__ import annotations

from pathlib import Path

from benchmarks.environments import MILVUS, MILVUS_LITE, Environment
from benchmarks.systems.elanus import ElanusSystem
from benchmarks.systems.faiss_raw import FaissSystem
from benchmarks.systems.milvus import MilvusSystem
from benchmarks.systems.milvus_lite import MilvusLiteSystem
from benchmarks.systems.protocol import Place, Server, System

__all__ = ["ENVIRONMENTS", "NAMES", "Place", "Server", "System", "make"]

NAMES = ("faiss", "milvus", "milvus-lite", "elanus")

#: What must be installed before a system can be made.
ENVIRONMENTS: dict[str, Environment] = {"milvus": MILVUS, "milvus-lite": MILVUS_LITE}


def make(name: str, place: Place, elanus_config: Path | None) -> System | Server:
    """Build the adapter of one system; its server is not started.

    Raises:
        ValueError: an unknown name.
    """
    match name:
        case "elanus":
            return ElanusSystem(place, elanus_config)
        case "faiss":
            return FaissSystem(place)
        case "milvus":
            return MilvusSystem(place)
        case "milvus-lite":
            return MilvusLiteSystem(place)
    raise ValueError(f"unknown system {name!r}; known are {', '.join(NAMES)}")
