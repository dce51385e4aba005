"""The process that the console shows: its report, and figures from its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import psutil
from prometheus_client import CollectorRegistry

from elanus.core.slow_requests import SlowRequest
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


class ConsoleSource:
    """Implements `elanus.console.status.Source`. ``status`` and ``slow``: `status` and `slow_requests` of
    `elanus.server.report.Report`."""

    def __init__(
        self,
        status: Callable[[], Status],
        slow: Callable[[], Sequence[SlowRequest]],
        registry: CollectorRegistry,
    ) -> None:
        self._status = status
        self._slow = slow
        self._registry = registry

    def status(self) -> Status:
        return self._status()

    def slow(self) -> Sequence[SlowRequest]:
        return list(reversed(self._slow()[-_SLOW_SHOWN:]))

    def figures(self) -> Mapping[str, float]:
        """Return the figures that this system measures; the size of a process's memory is Linux's."""
        found = {name: self._registry.get_sample_value(metric) for name, metric in _FIGURES.items()}
        known = {name: value for name, value in found.items() if value is not None}
        return {**known, "machineMemoryBytes": float(psutil.virtual_memory().total)}
