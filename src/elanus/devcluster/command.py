"""``elanus dev-cluster``: the services with one command, until it is interrupted."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, Protocol

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.process import ServiceFailed
from elanus.devcluster.spark import Spark
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


class _Ended(Exception):
    """A signal to end came."""


def run(directory: Path | None, names: Sequence[str], tell: Callable[[str], None]) -> None:
    """Start the named services, tell where they are, wait for a signal to end, stop them.

    Only for the main thread. Raises `ServiceFailed` for a name that is not known, a program that is
    missing, a service that does not start, and one that ends by itself; the others are stopped then.
    """
    for name in names:
        if name not in SERVICES:
            raise ServiceFailed(f"no service {name!r}; there are {', '.join(SERVICES)}")
    for ending in _ENDINGS:
        signal.signal(ending, _end)
    with ExitStack() as stack:
        stack.callback(_ignore_endings)
        try:
            if directory is None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elanus-dev-")))
            running = [_start(stack, SERVICES[name](directory.resolve()), tell) for name in names]
            tell(f"ready in {directory}; interrupt to stop")
            _watch(running)
        except _Ended:
            _ignore_endings()
            tell("stopping")


def _start(stack: ExitStack, service: Service, tell: Callable[[str], None]) -> Service:
    stack.callback(service.stop)
    service.start()
    for endpoint, address in service.endpoints.items():
        tell(f"{endpoint:<12}{address}")
    return service


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
