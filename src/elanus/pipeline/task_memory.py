"""How much memory a task may take, and the refusal of one that would need more.

A task that outgrows its limit is killed with its worker, often with the executor, and so is each of its
tries: nothing says why. So a task that cannot fit is refused before it begins. The check is against the whole
limit, whatever else runs there: it refuses only what can never succeed. Builds that fit alone and not
together wait for each other (`elanus.pipeline.memory_share`).

The memory that a user's file takes is not known before it is read: a small one may hold any amount. The task
that reads it is therefore bounded (`bounded_memory`): it fails by itself, before the system kills anything.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elanus.core.errors import InsufficientMemory

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_STATUS = Path("/proc/self/status")
_DATA = "VmData:"
_KB, _MB = 1024, 1024 * 1024


def require_memory(wanted_bytes: int, what: str, limit_bytes: int) -> None:
    """Raise `InsufficientMemory` for a task that takes more than the limit."""
    if wanted_bytes > limit_bytes:
        raise InsufficientMemory(
            f"{what} takes at least {wanted_bytes // _MB} MB, a task here has {limit_bytes // _MB} MB: give "
            "executors more (spark.executor.pyspark.memory or spark.executor.memoryOverhead in "
            "pipeline.spark_conf, the memory of the container), make segments smaller "
            "(datacoord.segment_size_max_mb), or choose an index that compresses"
        )


@contextmanager
def bounded_memory(more_bytes: int, what: str, remedy: str) -> Iterator[None]:
    """Let this process allocate at most ``more_bytes`` beyond what it has; raise `InsufficientMemory` where
    that is not enough. ``what``: the cause, for the message.

    The bound is the process's, so nothing else may run there. It counts what was allocated, not files that
    are mapped. A library that cannot handle a failed allocation ends its process, which is a worker's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [_data_bytes() + more_bytes, *(b for b in (soft, hard) if b != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    except MemoryError:
        raise InsufficientMemory(
            f"{what} takes more than the {more_bytes // _MB} MB of memory that a task may have: {remedy}"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Return what this process has allocated, in the sense of the limit."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(_DATA)) * _KB


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
