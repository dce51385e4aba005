"""The status of the server as an operation: what `elanus status` shows, for callers who may see all of it.

The status names every collection, so it takes the right to statistics on all collections of all databases
(`PrivilegeGetStatistics` on ``*`` in ``*``), which administrators have. A status is asked for once in
`KEPT_S`, however many pages are open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from elanus.core.errors import ElanusError
from elanus.core.privileges import ANY
from elanus.proxy.calls import Caller, ObjectType, Permission
from elanus.proxy.rest.errors import RestError, reported

STATUS = "Console.Status"
KEPT_S = 2.0


class Source(Protocol):
    """The server that the console shows. Called from the threads that answer."""

    def status(self) -> object:
        """Return the status in the form of ``/status`` of the metrics port."""
        ...

    def slow(self) -> object:
        """Return the latest slow reads of this process, the newest first (`elanus.proxy.watch`)."""
        ...

    def figures(self) -> Mapping[str, float]:
        """Return counts since the start and sizes in bytes of this process, by name."""
        ...


class StatusOperation:
    """Implements `elanus.proxy.calls.Operation`. ``now_s``: a monotonic clock.

    The answer has the ``status``, the ``slow`` reads, the ``figures``, and ``atMs``: when they were taken,
    for rates.
    """

    name = STATUS
    permission = Permission("PrivilegeGetStatistics", ObjectType.COLLECTION)

    def __init__(self, source: Source, now_s: Callable[[], float]) -> None:
        self._source = source
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept: Mapping[str, object] | None = None
        self._until_s = 0.0

    def read(self, sent: None) -> None:
        return sent

    def objects(self, request: None, caller: Caller) -> tuple[str, tuple[str, ...]]:
        return ANY, ()

    def run(self, request: None, caller: Caller) -> Mapping[str, object]:
        with self._lock:  # those who come meanwhile wait for this answer
            if self._kept is None or self._now_s() >= self._until_s:
                source = self._source
                found = {"status": source.status(), "slow": source.slow(), "figures": source.figures()}
                self._kept = {**found, "atMs": self._now_s() * 1000}
                self._until_s = self._now_s() + KEPT_S
            return self._kept

    def failed(self, error: ElanusError) -> Any:
        return reported(error)


def status_of(answer: Any) -> Mapping[str, object]:
    """Return the status in the operation's answer. Raises `RestError`."""
    if isinstance(answer, RestError):
        raise answer
    shown: Mapping[str, object] = answer
    return shown
