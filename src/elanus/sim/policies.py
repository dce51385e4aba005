"""The settings of a simulated system: small segments, short terms, so that much happens in a run.

How dense a run is differs from seed to seed, as its faults do: how much fits into a segment, how often
ticks come, ranges are written and compactions are looked for. What needs many small segments is met in
some runs, what needs rows that stay in the log for long in others; half of the runs are as dense as can be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from elanus.core.compaction import CompactionThresholds
from elanus.core.gc import GcPolicy
from elanus.core.sealing import SealPolicy
from elanus.datacoord.collecting import GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.quota import QuotaPolicy
from elanus.datanode.node import DataNodePolicy
from elanus.proxy.proxy import ProxyPolicy
from elanus.sim.verbs import READ_TIMEOUT_S

GRACEFUL_MS = 2000
RETENTION_S = 20.0
BALANCE_INTERVAL_S = 7.0
GC_POLICY = GcPolicy(
    drop_tolerance_s=3.0, missing_tolerance_s=0.0, commit_deadline_s=2.5, record_retention_s=12.0
)


@dataclass(frozen=True, slots=True)
class Density:
    """What differs between seeds. ``segment_size_max_bytes``: a row counts as 40. ``index_rows_min``: smaller
    segments go without an index, and the others are exchanged for an indexed copy."""

    segment_size_max_bytes: int = 3200
    sync_age_ms: int = 9000
    tick_interval_ms: int = 500
    compaction_interval_s: float = 5.0
    index_rows_min: int = 8


USUAL = Density()
_SEGMENT_BYTES = (3200, 6400, 9600)
_SYNC_AGES_MS = (6000, 15_000, 30_000)
_TICK_INTERVALS_MS = (400, 800, 1200)
_COMPACTION_INTERVALS_S = (5.0, 10.0)
_INDEX_ROWS_MIN = (8, 24)


def draw_density(seed: int) -> Density:
    """That of a seed: the same, always and everywhere. Half of the seeds are of the usual one."""
    chance = random.Random(f"{seed}/density")
    if chance.random() < 0.5:
        return USUAL
    return Density(
        chance.choice(_SEGMENT_BYTES),
        chance.choice(_SYNC_AGES_MS),
        chance.choice(_TICK_INTERVALS_MS),
        chance.choice(_COMPACTION_INTERVALS_S),
        chance.choice(_INDEX_ROWS_MIN),
    )


def proxy_policy(density: Density) -> ProxyPolicy:
    return ProxyPolicy(
        tick_interval_ms=density.tick_interval_ms,
        tasks_max=64,
        graceful_time_ms=GRACEFUL_MS,
        retention_s=RETENTION_S,
        read_timeout_s=READ_TIMEOUT_S,
        call_timeout_s=READ_TIMEOUT_S,
        quota_rows=10,
    )


def data_policy(density: Density, *, compacts: bool) -> DataPolicy:
    """``compacts``: without being asked."""
    compaction = CompactionPolicy(
        automatic=compacts,
        plan=PlanPolicy(CompactionThresholds(0.2, 1_000_000, 3), RETENTION_S, plans_max=20),
        interval_s=density.compaction_interval_s,
        timeout_s=15.0,
        orders_max=2,
    )
    return DataPolicy(
        quota=QuotaPolicy(segment_size_max_bytes=density.segment_size_max_bytes, expiration_ms=2000),
        flush=FlushPolicy(SealPolicy(proportion=0.75, age_s=30.0, idle_s=10.0), 12_000),
        trim_interval_s=5.0,
        gc=GcSchedule(GC_POLICY, enabled=True, interval_s=4.0, settle_s=2.0),
        compaction=compaction,
    )


def datanode_policy(density: Density) -> DataNodePolicy:
    return DataNodePolicy(
        report_ms=density.tick_interval_ms // 2,
        idle_report_ms=1000,
        idle_checkpoint_ms=4000,
        holding_checkpoint_ms=4000,
        sync_age_ms=density.sync_age_ms,
        range_size_max_bytes=40_000,
    )
