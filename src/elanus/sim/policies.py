"""The settings of a simulated system: small segments and short periods, so that much happens in a run.

The density of a run differs from seed to seed, as its faults do: how much fits into a segment, how often
ticks arrive, ranges are written and compactions are looked for. Bugs that need many small segments are found
in some runs, bugs that need rows to stay in the log for long in others. Half of the runs are as dense as
possible.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from elanus.core.compaction import CompactionThresholds
from elanus.core.gc import GcPolicy
from elanus.core.imports import ImportPolicy
from elanus.core.sealing import SealPolicy
from elanus.datacoord.collecting import GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.memory_pressure import MemoryPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.segment_allocator import AllocationPolicy
from elanus.datanode.policy import DataNodePolicy
from elanus.proxy.role.proxy import ProxyPolicy
from elanus.proxy.role.read_path import ReadPolicy
from elanus.querynode.delete_applier import DeleteLimits
from elanus.querynode.interim import InterimRules
from elanus.querynode.key_ranges import VISIT_KEYS
from elanus.sim.client_verbs import READ_TIMEOUT_S

GRACEFUL_MS = 2000
RETENTION_S = 20.0
BALANCE_INTERVAL_S = 7.0
GC_POLICY = GcPolicy(
    drop_tolerance_s=3.0, missing_tolerance_s=0.0, commit_deadline_s=2.5, record_retention_s=12.0
)


@dataclass(frozen=True, slots=True)
class Density:
    """The settings that differ between seeds.

    ``segment_size_max_bytes``: a row counts as 40. ``index_rows_min``: smaller segments get no index, and the
    others are exchanged for an indexed copy. ``idle_tick_ms``: how far the tick of a pchannel without writes
    may fall behind; 0: no further than any other's. ``growing_soft_bytes``: the growing data above which
    segments are sealed for memory; 0: none is. ``ttl_s``: the time-to-live of one collection; 0: its
    rows do not expire. ``interim_bytes``: how many bytes of growing rows are joined into one block; 0: none.
    """

    segment_size_max_bytes: int = 3200
    sync_age_ms: int = 9000
    tick_interval_ms: int = 500
    compaction_interval_s: float = 5.0
    index_rows_min: int = 8
    idle_tick_ms: int = 0
    growing_soft_bytes: int = 0
    ttl_s: int = 0
    interim_bytes: int = 0


USUAL = Density()
DELETE_LIMITS = DeleteLimits(inline_keys_max=2 * VISIT_KEYS, chunk_keys_max=VISIT_KEYS)
"""A delete that concerns three blocks or more is applied in threads, one or two blocks at a time."""
INLINE_ROWS_MAX = 8
"""Packs with more rows are prepared in threads."""
_SEGMENT_BYTES = (3200, 6400, 9600)
_SYNC_AGES_MS = (6000, 15_000, 30_000)
_TICK_INTERVALS_MS = (400, 800, 1200)
_COMPACTION_INTERVALS_S = (5.0, 10.0)
_INDEX_ROWS_MIN = (8, 24)
_IDLE_TICKS_MS = (0, 0, 0, 4000)
_GROWING_SOFT_BYTES = (0, 0, 0, 4000)
_TTLS_S = (0, 0, 0, 0, 12)
_INTERIM_BYTES = (0, 400)
_INTERIM_SEED_MIN = 150
"""Earlier seeds join no growing blocks: the planted bugs are found in the schedules that they had before."""


def draw_density(seed: int) -> Density:
    """Draw the density of a seed: the same on every machine.

    Half of the seeds have the usual one, apart from their idle ticks, sealing for memory, expiring rows and
    interim indexes.
    """
    chance = random.Random(f"{seed}/density")
    idle_tick_ms = random.Random(f"{seed}/idle").choice(_IDLE_TICKS_MS)
    growing_soft_bytes = random.Random(f"{seed}/memory").choice(_GROWING_SOFT_BYTES)
    ttl_s = random.Random(f"{seed}/ttl").choice(_TTLS_S)
    may_join = seed >= _INTERIM_SEED_MIN
    interim_bytes = random.Random(f"{seed}/interim").choice(_INTERIM_BYTES) if may_join else 0
    if chance.random() < 0.5:
        return replace(
            USUAL,
            idle_tick_ms=idle_tick_ms,
            growing_soft_bytes=growing_soft_bytes,
            ttl_s=ttl_s,
            interim_bytes=interim_bytes,
        )
    return Density(
        chance.choice(_SEGMENT_BYTES),
        chance.choice(_SYNC_AGES_MS),
        chance.choice(_TICK_INTERVALS_MS),
        chance.choice(_COMPACTION_INTERVALS_S),
        chance.choice(_INDEX_ROWS_MIN),
        idle_tick_ms,
        growing_soft_bytes,
        ttl_s,
        interim_bytes,
    )


def interim_rules(density: Density) -> InterimRules:
    """Growing blocks are joined without codes: vectors are too short for any, so searches stay exact."""
    return InterimRules(density.interim_bytes, 16 * density.interim_bytes, without_codes=True)


def proxy_policy(density: Density) -> ProxyPolicy:
    return ProxyPolicy(
        tick_interval_ms=density.tick_interval_ms,
        tasks_max=64,
        reads=ReadPolicy(GRACEFUL_MS, RETENTION_S, READ_TIMEOUT_S),
        call_timeout_s=READ_TIMEOUT_S,
        allocation_rows_min=10,
    )


def data_policy(density: Density, *, compacts: bool) -> DataPolicy:
    """``compacts``: whether compaction starts without being requested."""
    compaction = CompactionPolicy(
        automatic=compacts,
        plan=PlanPolicy(CompactionThresholds(0.2, 1_000_000, 3), RETENTION_S, plans_max=20),
        interval_s=density.compaction_interval_s,
        timeout_s=15.0,
        clustering_timeout_s=15.0,
        orders_max=2,
    )
    return DataPolicy(
        allocation=AllocationPolicy(
            segment_size_max_bytes=density.segment_size_max_bytes, expiration_ms=2000
        ),
        flush=FlushPolicy(SealPolicy(proportion=0.75, age_s=30.0, idle_s=10.0), 12_000),
        trim_interval_s=5.0,
        log_hold_s=10.0,
        gc=GcSchedule(GC_POLICY, enabled=True, interval_s=4.0, settle_s=2.0),
        compaction=compaction,
        imports=ImportPolicy(tasks_max=3, retention_ms=8000, write_retention_ms=60_000),
        memory=MemoryPolicy(density.growing_soft_bytes, look_interval_s=1.0),
    )


def datanode_policy(density: Density) -> DataNodePolicy:
    return DataNodePolicy(
        report_ms=density.tick_interval_ms // 2,
        idle_report_ms=1000,
        idle_look_ms=3000,
        idle_checkpoint_ms=4000,
        holding_checkpoint_ms=4000,
        sync_age_ms=density.sync_age_ms,
        range_size_max_bytes=40_000,
        flush_timeout_s=6.0,
    )
