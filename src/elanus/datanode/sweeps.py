"""Garbage collection as Spark jobs: one per prefix, so that a round takes one Spark slot at a time."""

from __future__ import annotations

from elanus.api.gc import SweepOrder, SweepOutcome
from elanus.core.errors import Cancelled, Internal
from elanus.core.faults import Fault
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobCancelled
from elanus.pipeline.sweep import sweep_job


class SparkSweeps:
    """Implements `elanus.api.gc.SweeperApi`."""

    def __init__(self, runner: JobRunner, store_url: str) -> None:
        self._runner = runner
        self._store_url = store_url

    async def sweep(self, order: SweepOrder, cause: str) -> SweepOutcome:
        try:
            (outcome,) = await self._runner.run(sweep_job([order], self._store_url), cause)
        except JobCancelled as error:
            raise Cancelled(f"the sweep of {order.prefix} was cancelled: {error}") from error
        except Fault as error:
            raise Internal(f"the sweep of {order.prefix} failed: {error}") from error
        return outcome
