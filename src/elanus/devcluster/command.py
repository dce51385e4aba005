"""``elanus dev-cluster``: services and roles of a cluster with one command, until it is interrupted."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, Protocol

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.process import ServiceFailed
from elanus.devcluster.roles import Elanus, write_config
from elanus.devcluster.spark import WORKERS, Spark
from elanus.devcluster.swift import Swift

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_S = 0.5


class Service(Protocol):
    """What is started and stopped as one. ``endpoints`` has what to tell about it."""

    @property
    def name(self) -> str: ...

    @property
    def endpoints(self) -> Mapping[str, str]: ...

    @property
    def running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


SERVICES: Mapping[str, Callable[[Path], Service]] = MappingProxyType(
    {"etcd": Etcd, "nats": Nats, "s3": Swift, "spark": Spark}
)
_CORES_OF_A_DATA_NODE = WORKERS
"""One of each worker."""
ELANUS = "elanus"
"""The roles themselves, on all of the services."""
CONFIG_FILE = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class Size:
    """How many nodes of each kind. ``port``: of the first proxy."""

    proxies: int = 1
    query_nodes: int = 2
    data_nodes: int = 1
    port: int = 19_530


class _Ended(Exception):
    """A signal to end came."""


def run(directory: Path | None, names: Sequence[str], size: Size, tell: Callable[[str], None]) -> None:
    """Start the named services (and roles), tell where they are, wait for a signal to end, stop them.

    Only for the main thread. Raises `ServiceFailed` for a name that is not known, a program that is
    missing, a service that does not start, and one that ends by itself; the others are stopped then.
    """
    for name in names:
        if name not in (*SERVICES, ELANUS):
            raise ServiceFailed(f"no service {name!r}; there are {', '.join((*SERVICES, ELANUS))}")
    if ELANUS in names and not set(SERVICES) <= set(names):
        raise ServiceFailed(f"{ELANUS} needs all of {', '.join(SERVICES)}: name them too")
    for ending in _ENDINGS:
        signal.signal(ending, _end)
    with ExitStack() as stack:
        stack.callback(_ignore_endings)
        try:
            if directory is None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elanus-dev-")))
            directory = directory.resolve()
            running = {
                name: _start(stack, _service(name, directory, size), tell)
                for name in SERVICES
                if name in names
            }
            if set(SERVICES) <= set(running):
                _configure(directory, running)
            if ELANUS in names:
                roles = Elanus(directory / CONFIG_FILE, directory, **asdict(size))
                running[ELANUS] = _start(stack, roles, tell)
            tell(f"ready in {directory}; interrupt to stop")
            _watch(tuple(running.values()))
        except _Ended:
            _ignore_endings()
            tell("stopping")


def _service(name: str, directory: Path, size: Size) -> Service:
    """Spark gets a core of each worker for every data node, and the memory of an executor."""
    if name == Spark.name:
        return Spark(directory, cores=size.data_nodes, memory_mb=1024 * size.data_nodes)
    return SERVICES[name](directory)


def _start(stack: ExitStack, service: Service, tell: Callable[[str], None]) -> Service:
    stack.callback(service.stop)
    service.start()
    for endpoint, address in service.endpoints.items():
        tell(f"{endpoint:<12}{address}")
    return service


def _configure(directory: Path, services: Mapping[str, Service]) -> None:
    """Write down what `elanus run` has to know of the services."""
    etcd, nats, s3, spark = (services[name] for name in SERVICES)
    imports = directory / "import"
    imports.mkdir(exist_ok=True)
    write_config(
        directory / CONFIG_FILE,
        etcd=etcd.endpoints["etcd"],
        nats=nats.endpoints["nats"],
        store_url=s3.endpoints["s3"],
        data_dir=directory / "elanus-data",
        more={
            "pipeline": {
                "spark_master": spark.endpoints["spark"],
                "driver_host": "127.0.0.1",
                "cores_max": _CORES_OF_A_DATA_NODE,
            },
            "imports": {"root": str(imports)},
        },
    )


def _watch(services: Sequence[Service]) -> NoReturn:
    while True:
        time.sleep(_LOOK_EVERY_S)
        for service in services:
            if not service.running:
                raise ServiceFailed(f"{service.name} has ended")


def _end(_number: int, _frame: object) -> None:
    raise _Ended


def _ignore_endings() -> None:
    """Stopping has begun; a second interrupt must not leave it half-done."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
