"""The process that the console shows: its report, figures from its metrics, its audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry

from elanus.core.slow_requests import SlowRequest
from elanus.proxy.access.audit import AuditLog
from elanus.server.memory_limit import machine_bytes
from elanus.server.status import Status

_FIGURES = {
    "elanus_rows_inserted_total": "rowsInserted",
    "elanus_rows_deleted_total": "rowsDeleted",
    "elanus_search_vectors_total": "searchVectors",
    "elanus_growing_bytes": "growingBytes",
    "elanus_log_bytes": "logBytes",
    "elanus_process_resident_memory_bytes": "memoryBytes",
    "elanus_process_cpu_seconds_total": "cpuSeconds",
}


_SLOW_SHOWN = 10
_RECORDS_SHOWN = 200


class ConsoleSource:
    """Implements `elanus.console.status.Source`. ``status`` and ``slow``: `status` and `slow_requests` of
    `elanus.server.report.Report`. ``audit_log``: None if the process has none."""

    def __init__(
        self,
        status: Callable[[], Status],
        slow: Callable[[], Sequence[SlowRequest]],
        registry: CollectorRegistry,
        audit_log: AuditLog | None = None,
    ) -> None:
        self._status = status
        self._slow = slow
        self._registry = registry
        self._audit_log = audit_log

    def status(self) -> Status:
        return self._status()

    def slow(self) -> Sequence[SlowRequest]:
        return list(reversed(self._slow()[-_SLOW_SHOWN:]))

    def findings(self, status: Status) -> Sequence[object]:
        from elanus.server.doctor import diagnose  # no server needs the rules to start

        return diagnose(status)

    def audit(self) -> Sequence[object] | None:
        return None if self._audit_log is None else self._audit_log.latest(_RECORDS_SHOWN)

    def figures(self) -> Mapping[str, float]:
        """Return the figures that this system measures; the size of a process's memory is Linux's."""
        families = self._registry.restricted_registry(_FIGURES).collect()  # one look, at these metrics only
        known = {_FIGURES[one.name]: one.value for family in families for one in family.samples}
        return {**known, "machineMemoryBytes": float(machine_bytes())}
