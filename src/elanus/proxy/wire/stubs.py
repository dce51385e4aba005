"""The generated Milvus messages, taken from pymilvus without importing pymilvus.

No ``.proto`` files of Milvus are published for Python; the client package carries the generated
modules. Importing the client costs 1.3 s and 100 MB, because it pulls in pandas and the whole client. Its
``grpc_gen`` folder alone costs 50 ms and 4 MB. So the folder is mounted here as a package of our own name.

A process that also imports the client (a test, a notebook) is safe: protobuf keeps one descriptor
pool a process, and registering byte-equal files twice yields the same message classes.

The service's stubs (``milvus_pb2_grpc``) are not loaded: `elanus.proxy.wire.service` builds its handlers
from the service descriptor.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = f"{__package__}.milvus_protos"


def _mount_generated_package() -> None:
    client = importlib.util.find_spec("pymilvus")
    if client is None or client.origin is None:
        raise ImportError("the package pymilvus is not installed; it carries the Milvus message definitions")
    package = ModuleType(_PACKAGE, "The generated modules of pymilvus.grpc_gen.")
    package.__path__ = [str(Path(client.origin).parent / "grpc_gen")]
    sys.modules[_PACKAGE] = package


def _load(module: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{module}")


_mount_generated_package()
common_pb2: Any = _load("common_pb2")
schema_pb2: Any = _load("schema_pb2")
milvus_pb2: Any = _load("milvus_pb2")

Message = Any
"""A protobuf message. The generated classes carry no types that a checker could see."""

SERVICE: Any = milvus_pb2.DESCRIPTOR.services_by_name["MilvusService"]
"""The descriptor of ``milvus.proto.milvus.MilvusService``."""
