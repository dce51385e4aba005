"""Tasks of `test_cluster_allocation`; Python workers of the cluster import them from here."""

from __future__ import annotations

import os
import time
from pathlib import Path

WAIT_S = 120.0


def meet(plan: str) -> int:
    """Wait until the files of all four tasks are there; return the process that forked this worker."""
    own = Path(plan)
    own.touch()
    deadline_s = time.monotonic() + WAIT_S
    while len([n for n in range(4) if own.with_name(str(n)).exists()]) < 4:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"only {sorted(own.parent.iterdir())} run at a time")
        time.sleep(0.05)
    return os.getppid()


def cores(_plan: str) -> int:
    """Return how many cores Spark counts for the task."""
    from pyspark import TaskContext

    return TaskContext.get().cpus()
