"""The policies of the roles, from the settings: units are converted here, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from elanus.core.compaction import CompactionThresholds
from elanus.core.embedding import PROVIDERS
from elanus.core.gc import GcPolicy
from elanus.core.imports import ImportPolicy
from elanus.core.rate_limits import Rate
from elanus.core.requests import RequestLimits
from elanus.core.sealing import SealPolicy
from elanus.datacoord.collecting import GcSchedule
from elanus.datacoord.compactor import CompactionPolicy
from elanus.datacoord.coord import DataPolicy
from elanus.datacoord.flushing import FlushPolicy
from elanus.datacoord.ledger import LedgerPolicy
from elanus.datacoord.memory_pressure import MemoryPolicy
from elanus.datacoord.planner import PlanPolicy
from elanus.datacoord.segment_allocator import AllocationPolicy
from elanus.proxy.embedding import EmbeddingPolicy, ProviderAccess
from elanus.proxy.role.proxy import ProxyPolicy
from elanus.proxy.role.read_path import ReadPolicy
from elanus.proxy.verbs.pressure import PressureLimits
from elanus.querynode.interim import InterimRules
from elanus.querynode.node import QueryNodePolicy
from elanus.server.settings import ProxySettings, RateLimitSettings, Settings
from elanus.server.settings_functions import FunctionSettings, ProviderSettings

_MB = 1024 * 1024
_MS_PER_S = 1000
_SYNC_BYTES = 256 * _MB
_TRIM_INTERVAL_S = 10.0
_MEMORY_LOOK_S = 1.0
_GC_SETTLE_S = 5.0
_IDLE_TICK_MAX_MS = 1000


def idle_tick_ms(settings: ProxySettings) -> int:
    """Half of the staleness that a Bounded read tolerates, so that it hardly ever has to request a tick."""
    return max(settings.time_tick_interval_ms, min(settings.graceful_time_ms // 2, _IDLE_TICK_MAX_MS))


def data_policy(settings: Settings) -> DataPolicy:
    data = settings.datacoord
    return DataPolicy(
        allocation=AllocationPolicy(data.segment_size_max_mb * _MB, data.assignment_expiration_ms),
        flush=FlushPolicy(SealPolicy(data.seal_proportion, data.seal_age_s, data.seal_idle_s), _SYNC_BYTES),
        compaction=_compaction_policy(settings),
        trim_interval_s=_TRIM_INTERVAL_S,
        log_hold_s=data.log_hold_s,
        gc=_gc_schedule(settings),
        imports=_import_policy(settings),
        memory=MemoryPolicy(settings.backpressure.growing_soft_mb * _MB, _MEMORY_LOOK_S),
    )


def _compaction_policy(settings: Settings) -> CompactionPolicy:
    compaction = settings.compaction
    thresholds = CompactionThresholds(
        compaction.deleted_ratio,
        compaction.deleted_mb * _MB,
        compaction.merge_segments_min,
        compaction.merge_delta_logs_min,
    )
    return CompactionPolicy(
        automatic=compaction.enabled,
        plan=PlanPolicy(thresholds, settings.datacoord.retention_s, compaction.plans_max),
        interval_s=compaction.interval_s,
        timeout_s=compaction.timeout_s,
        orders_max=compaction.orders_max,
        clustering_timeout_s=compaction.clustering_timeout_s,
    )


def _gc_schedule(settings: Settings) -> GcSchedule:
    gc = settings.gc
    policy = GcPolicy(
        gc.drop_tolerance_s, gc.missing_tolerance_s, gc.commit_deadline_s, gc.record_retention_s
    )
    return GcSchedule(policy, gc.enabled, gc.interval_s, _GC_SETTLE_S)


def _import_policy(settings: Settings) -> ImportPolicy:
    imports = settings.imports
    return ImportPolicy(
        imports.tasks_max,
        round(imports.retention_s * _MS_PER_S),
        round(imports.write_retention_s * _MS_PER_S),
        imports.at_once,
        round(imports.timeout_s * _MS_PER_S),
    )


def ledger_policy(settings: Settings) -> LedgerPolicy:
    return LedgerPolicy(settings.datacoord.jobs_max, settings.datacoord.jobs_age_max_s)


def query_node_policy(settings: Settings, shared: Path | None) -> QueryNodePolicy:
    """``shared``: see `QueryNodePolicy`."""
    node = settings.querynode
    return QueryNodePolicy(
        search_threads=node.search_threads or os.cpu_count() or 1,
        capacity_bytes=node.memory_mb * _MB,
        interim=InterimRules(node.interim_index_mb * _MB),
        shared=shared,
    )


def pressure_limits(settings: Settings) -> PressureLimits:
    backpressure = settings.backpressure
    return PressureLimits(
        growing_soft_bytes=backpressure.growing_soft_mb * _MB,
        growing_hard_bytes=backpressure.growing_hard_mb * _MB,
        disk_reserve_bytes=backpressure.disk_reserve_mb * _MB,
        delayed_writers_max=backpressure.delayed_writers_max or max(1, settings.proxy.workers // 4),
    )


def proxy_policy(settings: Settings) -> ProxyPolicy:
    proxy = settings.proxy
    return ProxyPolicy(
        tick_interval_ms=proxy.time_tick_interval_ms,
        tasks_max=proxy.max_task_num,
        reads=ReadPolicy(proxy.graceful_time_ms, settings.datacoord.retention_s, proxy.read_timeout_s),
        call_timeout_s=proxy.read_timeout_s,
        allocation_rows_min=settings.datacoord.allocation_rows_min,
        limits=RequestLimits(
            proxy.search_hits_max,
            proxy.answer_max_mb * _MB,
            proxy.delete_step_keys_max,
            proxy.segment_filter_ratio,
        ),
        rates=_rates(settings.rate_limits),
        disk_max_bytes=settings.rate_limits.disk_max_mb * _MB or None,
        embedding=embedding_policy(settings.function),
    )


def _rates(settings: RateLimitSettings) -> dict[Rate, float]:
    """Return the rates that are limited, in bytes, query vectors or queries a second."""
    limits = {
        Rate.INSERT: settings.insert_max_mb_per_s * _MB,
        Rate.UPSERT: settings.upsert_max_mb_per_s * _MB,
        Rate.DELETE: settings.delete_max_mb_per_s * _MB,
        Rate.SEARCH: settings.search_max_vectors_per_s,
        Rate.QUERY: settings.query_max_per_s,
    }
    return {rate: limit for rate, limit in limits.items() if limit}


def embedding_policy(settings: FunctionSettings) -> EmbeddingPolicy:
    return EmbeddingPolicy(
        {name: _access(getattr(settings, name)) for name in PROVIDERS},
        settings.timeout_s,
        settings.calls_max,
        settings.texts_max,
        settings.client_endpoints,
    )


def _access(settings: ProviderSettings) -> ProviderAccess:
    return ProviderAccess(settings.url, settings.api_key.get_secret_value(), settings.api_key_file)
