"""How much memory this process may take, and what follows for the sizes of segments and of growing data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import structlog

from elanus.server.settings import Settings

_MB = 1 << 20
_HARD_LEAST_MB = 64
"""As much as the largest message of a client."""
_AMPLE_BYTES = 12 << 30
"""With so much, a standalone server plans segments of twice the size: a search asks half as many graphs, and
walks in a graph twice as large take 1.15 times as long."""
MEMBERSHIP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
_log = structlog.get_logger("server")


def machine_bytes() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes(
    membership: Path = MEMBERSHIP, groups: Path = GROUPS, machine: int | None = None
) -> int:
    """Return the lowest limit of the control groups that this process is in, or the memory of the machine.

    A container and a systemd unit with ``MemoryMax`` are control groups; both versions of them are read.
    ``machine``: the memory of the machine, by default what it is.
    """
    limits = [machine_bytes() if machine is None else machine]
    for file in limit_files("memory", "memory.limit_in_bytes", "memory.max", membership, groups):
        try:
            text = file.read_text().strip()
        except OSError:  # the group is outside of this container, or it has no limit
            continue
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)


def limit_files(
    controller: str, file_v1: str, file_v2: str, membership: Path = MEMBERSHIP, groups: Path = GROUPS
) -> Iterator[Path]:
    """Yield the files with a controller's limits, of the process' groups and of those that these are in.

    ``file_v1``, ``file_v2``: their names in the two versions of control groups.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, _, kind_and_path = line.partition(":")
        kinds, _, path = kind_and_path.partition(":")
        if not line or (kinds and controller not in kinds.split(",")):
            continue
        base, name = (groups / controller, file_v1) if kinds else (groups, file_v2)
        own = base / path.lstrip("/")
        yield from (group / name for group in (own, *own.parents) if group.is_relative_to(base))


def with_ample_memory(settings: Settings, limit_bytes: int) -> Settings:
    """Return the settings of a standalone server, with segments of twice the size where memory is ample.

    Growing data may then be twice as much, so that one segment has room to grow while another is flushed.
    A server for which any of these sizes is set keeps all of them.
    """
    datacoord, backpressure = settings.datacoord, settings.backpressure
    is_chosen = "segment_size_max_mb" in datacoord.model_fields_set or backpressure.model_fields_set & {
        "growing_soft_mb",
        "growing_hard_mb",
    }
    if is_chosen or limit_bytes < _AMPLE_BYTES:
        return settings
    larger = {"segment_size_max_mb": 2 * datacoord.segment_size_max_mb}
    more = {
        "growing_soft_mb": 2 * backpressure.growing_soft_mb,
        "growing_hard_mb": 2 * backpressure.growing_hard_mb,
    }
    return settings.model_copy(
        update={
            "datacoord": datacoord.model_copy(update=larger),
            "backpressure": backpressure.model_copy(update=more),
        }
    )


def within_memory(settings: Settings, limit_bytes: int) -> Settings:
    """Return the settings with growing data limited to half of what Spark leaves, and slowed earlier.

    For a standalone server, whose Spark has its memory in the same container. Without this, a small one is
    killed before a write is refused.
    """
    asked = settings.backpressure
    left_mb = limit_bytes // _MB - settings.pipeline.driver_memory_mb
    hard_mb = min(asked.growing_hard_mb, max(_HARD_LEAST_MB, left_mb // 2))
    soft_mb = min(asked.growing_soft_mb, hard_mb // 2)
    if hard_mb == asked.growing_hard_mb:
        return settings
    _log.warning(
        "growing data is limited to half of the memory that Spark leaves; give the server more memory, or "
        "lower backpressure.growing_soft_mb and growing_hard_mb",
        memory_mb=limit_bytes // _MB,
        growing_soft_mb=soft_mb,
        growing_hard_mb=hard_mb,
    )
    lowered = asked.model_copy(update={"growing_soft_mb": soft_mb, "growing_hard_mb": hard_mb})
    return settings.model_copy(update={"backpressure": lowered})
