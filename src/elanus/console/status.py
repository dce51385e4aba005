"""The status of the server as an operation: what `elanus status` shows, for callers who may see all of it.
The findings of `elanus doctor` about it, and the latest records of the audit log, are operations too.

The status names every collection, so it takes the right to statistics on all collections of all databases
(`PrivilegeGetStatistics` on ``*`` in ``*``), which administrators have. A status is asked for once in
`KEPT_S`, however many pages are open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from elanus.core.errors import ElanusError
from elanus.core.privileges import ANY
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType, Permission
from elanus.proxy.calls import Operation
from elanus.proxy.rest.errors import RestError, reported
from elanus.proxy.rest.values import encoded

STATUS, DOCTOR, AUDIT = "Console.Status", "Console.Doctor", "Console.Audit"
KEPT_S = 2.0


class Source(Protocol):
    """The server that the console shows. Called from the threads that answer."""

    def status(self) -> object:
        """Return the status in the form of ``/status`` of the metrics port."""
        ...

    def slow(self) -> object:
        """Return the latest slow reads of this process, the newest first (`elanus.proxy.read_watch`)."""
        ...

    def findings(self, status: Any) -> Sequence[object]:
        """Return what is wrong by a status that `status` returned (`elanus.server.doctor`)."""
        ...

    def audit(self) -> Sequence[object] | None:
        """Return the latest records of this process's audit log, the newest first; None if it has no log."""
        ...

    def figures(self) -> Mapping[str, float]:
        """Return counts since the start and sizes in bytes of this process, by name."""
        ...


class Snapshot(NamedTuple):
    """``text``: the JSON of the answer, which is written once for all pages."""

    status: object
    text: orjson.Fragment


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
        self._kept: Snapshot | None = None
        self._until_s = 0.0

    def read(self, sent: None) -> None:
        return sent

    def objects(self, request: None, caller: Caller) -> tuple[str, tuple[str, ...]]:
        return ANY, ()

    def run(self, request: None, caller: Caller) -> orjson.Fragment:
        return self.snapshot().text

    def snapshot(self) -> Snapshot:
        """Return the status that is kept, or ask for one. Raises `ElanusError`."""
        with self._lock:  # those who come meanwhile wait for this answer
            if self._kept is None or self._now_s() >= self._until_s:
                source, status = self._source, self._source.status()
                found = {"status": status, "slow": source.slow(), "figures": source.figures()}
                text = orjson.Fragment(encoded({**found, "atMs": self._now_s() * 1000}))
                self._kept = Snapshot(status, text)
                self._until_s = self._now_s() + KEPT_S
            return self._kept

    def failed(self, error: ElanusError) -> Any:
        return reported(error)


class DoctorOperation:
    """Implements `elanus.proxy.calls.Operation`: the ``findings`` about the status that ``status`` keeps."""

    name = DOCTOR
    permission = StatusOperation.permission

    def __init__(self, source: Source, status: StatusOperation) -> None:
        self._source = source
        self._status = status
        self.read = status.read
        self.objects = status.objects
        self.failed = status.failed

    def run(self, request: None, caller: Caller) -> Mapping[str, object]:
        return {"findings": self._source.findings(self._status.snapshot().status)}


class AuditOperation:
    """Implements `elanus.proxy.calls.Operation`: the ``records``; None if there is no audit log.

    The records show who did what in all databases, so it takes the right to manage users and roles.
    """

    name = AUDIT
    permission = Permission("PrivilegeManageOwnership", ObjectType.GLOBAL)

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, sent: None) -> None:
        return sent

    def objects(self, request: None, caller: Caller) -> tuple[str, tuple[str, ...]]:
        return ANY, ()

    def run(self, request: None, caller: Caller) -> Mapping[str, object]:
        return {"records": self._source.audit()}

    def failed(self, error: ElanusError) -> Any:
        return reported(error)


OPERATIONS = (StatusOperation, DoctorOperation, AuditOperation)


def console_operations(source: Source, now_s: Callable[[], float]) -> tuple[Operation, ...]:
    """Return all operations of this module."""
    status = StatusOperation(source, now_s)
    return status, DoctorOperation(source, status), AuditOperation(source)


def data_of(answer: object) -> object:
    """Return an operation's answer. Raises `RestError`."""
    if isinstance(answer, RestError):
        raise answer
    return answer
