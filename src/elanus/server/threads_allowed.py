"""How many threads this process and its children may start.

A container, a systemd unit (``TasksMax``), the user (``ulimit -u``) and the machine each have a limit, and
threads of other processes count too. So it is tried. gRPC's library ends a process that is refused one of
its first threads, without a word that helps.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from pathlib import Path

from elanus.server.memory_limit import GROUPS, MEMBERSHIP, limit_files
from elanus.server.startup import CannotStart

OWN_LEAST = 32
"""A process at rest has 17 threads on two processors, and under the reads of twenty clients 44: with fewer,
reads wait for each other."""
SPARK_LEAST = 96
"""Spark's Java process and its workers have 77 on two processors."""
_STACK_BYTES = 64 << 10


def check_room_for_threads(processes: int, *, with_spark: bool) -> None:
    """Raise `CannotStart` if the system does not allow as many more threads as a server needs.

    ``processes``: those that answer clients.
    """
    needed = OWN_LEAST * processes + (SPARK_LEAST if with_spark else 0)
    allowed = _startable(needed)
    if allowed < needed:
        limits = ", ".join(limits_of_threads())
        raise CannotStart(
            f"the system allows this process {allowed} more threads, and it needs at least {needed}"
            + (f", {SPARK_LEAST} of them for Spark" if with_spark else "")
            + ": raise TasksMax of the systemd unit, the container's limit of pids, or ulimit -u"
            + (f" ({limits})" if limits else "")
        )


def _startable(wanted: int) -> int:
    """Start threads that do nothing, and return how many there were: at most ``wanted``."""
    is_over = threading.Event()
    started = []
    usual_bytes = threading.stack_size(_STACK_BYTES)  # their memory is not what is tried
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=is_over.wait, name="tried", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    finally:
        threading.stack_size(usual_bytes)
        is_over.set()
        for thread in started:
            thread.join()
    return len(started)


def limits_of_threads(membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> Iterator[str]:
    """Yield the limits that are known, in words. Those of a container's host are not."""
    for file in limit_files("pids", "pids.max", "pids.max", membership, groups):
        try:
            limit, now = file.read_text().strip(), file.with_name("pids.current").read_text().strip()
        except OSError:  # the group is outside of this container, or it has no limit
            continue
        if limit.isdecimal():
            yield f"{file} is {limit}, of which {now} are taken"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        yield f"ulimit -u is {soft}"
