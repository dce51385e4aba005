"""``elanus dev-cluster``: start the services and roles of a cluster with one command, until interrupted."""

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
from elanus.devcluster.process import ServiceFailed, ServiceProcess
from elanus.devcluster.restarts import Restarts
from elanus.devcluster.roles import Elanus, write_config
from elanus.devcluster.spark import WORKERS, Spark
from elanus.devcluster.swift import Swift

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_S = 0.5


class Service(Protocol):
    """A service that is started and stopped as a unit. ``endpoints``: the addresses to print, by name."""

    @property
    def name(self) -> str: ...

    @property
    def endpoints(self) -> Mapping[str, str]: ...

    @property
    def processes(self) -> Sequence[ServiceProcess]: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


SERVICES: Mapping[str, Callable[[Path], Service]] = MappingProxyType(
    {"etcd": Etcd, "nats": Nats, "s3": Swift, "spark": Spark}
)
_CORES_OF_A_DATA_NODE = WORKERS
"""One core of each worker."""
ELANUS = "elanus"
"""The name for the roles themselves, which need all of the services."""
CONFIG_FILE = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class Size:
    """The number of nodes of each kind. ``port``: the port of the first proxy."""

    proxies: int = 1
    query_nodes: int = 2
    data_nodes: int = 1
    port: int = 19_530


class _Ended(Exception):
    """A signal to end was received."""


def run(directory: Path | None, names: Sequence[str], size: Size, report: Callable[[str], None]) -> None:
    """Start the named services (and roles), print their addresses, wait for a signal to end, stop them.

    A process that ends on its own later is reported and started again (`elanus.devcluster.restarts`).
    Only for the main thread. Raises `ServiceFailed` for an unknown name, a missing program, or a
    service that does not start; the other services are stopped in that case.
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
            # All are created before the first one starts, so a missing program is detected at once.
            running = {name: _service(name, directory, size) for name in SERVICES if name in names}
            for service in running.values():
                _start(stack, service, report)
            if set(SERVICES) <= set(running):
                _configure(directory, running)
            if ELANUS in names:
                roles = Elanus(directory / CONFIG_FILE, directory, **asdict(size))
                running[ELANUS] = _start(stack, roles, report)
            report(f"ready in {directory}; interrupt to stop")
            _watch(tuple(running.values()), report)
        except _Ended:
            _ignore_endings()
            report("stopping")


def _service(name: str, directory: Path, size: Size) -> Service:
    """Create a service. Spark gets one core per worker and one executor's memory for each data node."""
    if name == Spark.name:
        return Spark(directory, cores=size.data_nodes, memory_mb=1024 * size.data_nodes)
    return SERVICES[name](directory)


def _start(stack: ExitStack, service: Service, report: Callable[[str], None]) -> Service:
    stack.callback(service.stop)
    service.start()
    for endpoint, address in service.endpoints.items():
        report(f"{endpoint:<12}{address}")
    return service


def _configure(directory: Path, services: Mapping[str, Service]) -> None:
    """Write the settings of the services for `elanus run`."""
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


def _watch(services: Sequence[Service], report: Callable[[str], None]) -> NoReturn:
    restarts = Restarts([process for service in services for process in service.processes], report)
    while True:
        time.sleep(_LOOK_EVERY_S)
        restarts.check()


def _end(_number: int, _frame: object) -> None:
    raise _Ended


def _ignore_endings() -> None:
    """Ignore further signals: a second interrupt must not cut the shutdown short."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
