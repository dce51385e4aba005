"""Failures of tasks that reach the driver while the job's other tasks still run.

Spark hands out a job's results when its last task has ended. Accumulators travel with each task's own end, so
a failure is sent through one; the driver then ends the job, which would fail in any case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyspark import Accumulator, AccumulatorParam, SparkContext

from elanus.pipeline.worker import TaskFailure

Failures = tuple[tuple[str, TaskFailure], ...]
"""Each with the group of its job."""


class FailureReports:
    """The failures of the jobs that run.

    ``end(group)`` ends the job's other tasks. It is called in a thread of its own, because Spark waits for
    the report to be taken.
    """

    def __init__(self, context: SparkContext, end: Callable[[str], None]) -> None:
        self._end = end
        self._first: dict[str, TaskFailure] = {}
        self.channel: Accumulator[Failures] = context.accumulator((), _Channel(self._take))

    def first(self, group: str) -> TaskFailure | None:
        """Return the failure that was reported first."""
        return self._first.get(group)

    def forget(self, group: str) -> None:
        """Drop what is known of a job that has ended."""
        self._first.pop(group, None)

    def _take(self, failures: Failures) -> None:
        for group, failure in failures:
            if self._first.setdefault(group, failure) is failure:
                threading.Thread(target=self._end, args=(group,), name=f"end {group}", daemon=True).start()


class _Channel(AccumulatorParam[Failures]):
    """Collects in a worker; in the driver, passes on what arrives and keeps nothing."""

    def __init__(self, take: Callable[[Failures], None] | None = None) -> None:
        self._take = take

    def __reduce__(self) -> tuple[Any, ...]:
        return _Channel, ()

    def zero(self, value: Failures) -> Failures:
        return ()

    def addInPlace(self, value1: Failures, value2: Failures) -> Failures:  # noqa: N802 - Spark's name
        if self._take is None:
            return value1 + value2
        self._take(value2)
        return ()
