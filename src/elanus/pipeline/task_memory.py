"""How much memory a task may take, and the refusal of one that would need more.

A task that outgrows its limit is killed with its worker, often with the executor, and so is each of its
tries: nothing says why. So a task that cannot fit is refused before it begins. The check is against the whole
limit, whatever else runs there: it refuses only what can never succeed. Builds that fit alone and not
together wait for each other (`elanus.pipeline.memory_share`).
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from elanus.core.errors import InsufficientMemory

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MB = 1024 * 1024


def require_memory(wanted_bytes: int, what: str, limit_bytes: int) -> None:
    """Raise `InsufficientMemory` for a task that takes more than the limit."""
    if wanted_bytes > limit_bytes:
        raise InsufficientMemory(
            f"{what} takes at least {wanted_bytes // _MB} MB, a task here has {limit_bytes // _MB} MB: give "
            "executors more (spark.executor.pyspark.memory or spark.executor.memoryOverhead in "
            "pipeline.spark_conf, the memory of the container), make segments smaller "
            "(datacoord.segment_size_max_mb), or choose an index that compresses"
        )


def memory_limit_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the least of: what Spark allows this process (``spark.executor.pyspark.memory``), the limit of
    the container, the memory of the machine."""
    of_process, _ = resource.getrlimit(resource.RLIMIT_AS)
    of_all = machine_bytes(cgroup)
    return of_all if of_process == resource.RLIM_INFINITY else min(of_all, of_process)


def machine_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the memory of the machine, or the limit of the container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        of_container = cgroup.read_text().strip()
    except OSError:  # not in a container, or an older kernel
        return machine
    return min(machine, int(of_container)) if of_container.isdecimal() else machine
