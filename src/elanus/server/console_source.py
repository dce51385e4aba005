"""The process that the console shows: its report, figures from its metrics, its audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import psutil
from prometheus_client import CollectorRegistry

from elanus.core.slow_requests import SlowRequest
from elanus.proxy.audit import AuditLog
from elanus.server.status import Status

_FIGURES = {
    "rowsInserted": "elanus_rows_inserted_total",
    "rowsDeleted": "elanus_rows_deleted_total",
    "searchVectors": "elanus_search_vectors_total",
    "growingBytes": "elanus_growing_bytes",
    "logBytes": "elanus_log_bytes",
    "memoryBytes": "elanus_process_resident_memory_bytes",
    "cpuSeconds": "elanus_process_cpu_seconds_total",
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
        found = {name: self._registry.get_sample_value(metric) for name, metric in _FIGURES.items()}
        known = {name: value for name, value in found.items() if value is not None}
        return {**known, "machineMemoryBytes": float(psutil.virtual_memory().total)}
