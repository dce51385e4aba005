"""The settings of a simulated system: small segments, short terms, so that much happens in a run."""

from __future__ import annotations

from elanus.core.compaction import CompactionThresholds
from elanus.core.gc import GcPolicy
from elanus.core.sealing import SealPolicy
from elanus.datacoord.collecting import GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.quota import QuotaPolicy
from elanus.proxy.proxy import ProxyPolicy
from elanus.sim.verbs import READ_TIMEOUT_S

GRACEFUL_MS = 2000
TICK_INTERVAL_MS = 500
RETENTION_S = 20.0
PROXY_POLICY = ProxyPolicy(
    tick_interval_ms=TICK_INTERVAL_MS,
    tasks_max=64,
    graceful_time_ms=GRACEFUL_MS,
    retention_s=RETENTION_S,
    read_timeout_s=READ_TIMEOUT_S,
    call_timeout_s=READ_TIMEOUT_S,
    quota_rows=10,
)
GC_POLICY = GcPolicy(
    drop_tolerance_s=3.0, missing_tolerance_s=0.0, commit_deadline_s=2.5, record_retention_s=12.0
)
COMPACTION = CompactionPolicy(
    automatic=True,
    plan=PlanPolicy(CompactionThresholds(0.2, 1_000_000, 3), RETENTION_S, plans_max=20),
    interval_s=5.0,
    timeout_s=15.0,
    orders_max=2,
)
DATA_POLICY = DataPolicy(
    quota=QuotaPolicy(segment_size_max_bytes=3200, expiration_ms=2000),
    flush=FlushPolicy(SealPolicy(proportion=0.75, age_s=30.0, idle_s=10.0), 12_000),
    trim_interval_s=5.0,
    gc=GcSchedule(GC_POLICY, enabled=True, interval_s=4.0, settle_s=2.0),
    compaction=COMPACTION,
)
