"""The gauges among the metrics: refreshed every few seconds, each by the process whose role has the value."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from prometheus_client import Gauge

from elanus.api.pipeline import SparkState
from elanus.core.errors import ElanusError
from elanus.core.ids import NodeID
from elanus.core.jobs import JobKind, JobState
from elanus.core.segments import SegmentState
from elanus.core.timestamps import Timestamp, lag_ms
from elanus.metrics import Metrics
from elanus.server.report import Report, Subject

_INTERVAL_S = 5.0
_SHOWN_STATES = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHING, SegmentState.FLUSHED)


class Gauges:
    """Sets the gauges of the roles that run in this process; a coordinator's only where it is active."""

    def __init__(self, subject: Subject, report: Report, metrics: Metrics) -> None:
        self._subject = subject
        self._report = report
        self._metrics = metrics
        self._lags = _Shown(metrics.channel_lag_ms)
        self._owners = _Shown(metrics.owned_vchannels)
        self._recall = _Shown(metrics.recall)
        self._recall_samples = _Shown(metrics.recall_samples)

    async def keep(self) -> None:
        """Refresh the gauges until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            try:
                await self._refresh()
            except ElanusError:
                continue  # a role is restarting; the next round refreshes it

    async def _refresh(self) -> None:
        if self._runs("rootcoord"):
            await self._refresh_channels()
        if self._runs("datacoord"):
            await self._refresh_data()
        if self._runs("querycoord"):
            await self._refresh_groups()
        self._refresh_recall()
        self._metrics.growing_bytes.set(self._subject.growing_bytes())

    def _runs(self, role: str) -> bool:
        roles = self._subject.roles
        return role in roles.names() and roles.is_running(role)

    def _refresh_recall(self) -> None:
        """Set the mean over all collections, by index type and band."""
        samples: Counter[tuple[str, ...]] = Counter()
        found: Counter[tuple[str, ...]] = Counter()
        measured = self._subject.recall.measured()
        for one in measured:
            samples[one.index, one.band] += one.samples
            found[one.index, one.band] += one.recall * one.samples  # type: ignore[assignment]
        self._recall.show({key: found[key] / count for key, count in samples.items()})
        self._recall_samples.show(samples)
        self._metrics.recall_missed.set(sum(bool(one.cause) for one in measured))

    async def _refresh_channels(self) -> None:
        self.show_lags(await self._subject.root.ticks(), self._subject.clock.wall_ms())
        self._metrics.log_bytes.set(self._subject.log.size_bytes())

    def show_lags(self, ticks: Mapping[str, Timestamp], now_ms: int) -> None:
        """Set the gauge of each pchannel. Those that are no longer in use are removed: they get no ticks."""
        self._lags.show({(pchannel,): lag_ms(now_ms, tick) for pchannel, tick in ticks.items()})

    async def _refresh_groups(self) -> None:
        groups = await self._report.resource_groups()
        self._metrics.resource_groups.set(len(groups))
        self._metrics.missing_nodes.set(sum(group.missing_nodes for group in groups))

    async def _refresh_data(self) -> None:
        metrics, subject = self._metrics, self._subject
        spark = await self._report.spark_state()
        metrics.pipeline_up.set(spark is not None or self._report.has_data_node())
        metrics.spark_awake.set(spark is SparkState.AWAKE)
        running = Counter(e.kind for e in await subject.ledger.jobs() if e.state is JobState.RUNNING)
        for kind in JobKind:
            metrics.jobs_running.labels(kind.value).set(running[kind])
        states = Counter(await subject.data.segment_states())
        for state in SegmentState:
            if state.name.lower() in states or state in _SHOWN_STATES:
                metrics.segments.labels(state.name.lower()).set(states[state.name.lower()])
        self.show_owners(Counter(await subject.data.owned_vchannels()))
        metrics.quarantined_entries.set(sum((await subject.data.quarantined()).values()))
        garbage = await subject.data.gc_status()
        metrics.gc_waiting_bytes.set(garbage.waiting_bytes)
        metrics.gc_reclaimed_bytes.set(garbage.reclaimed_bytes)

    def show_owners(self, owned: Mapping[NodeID, int]) -> None:
        """Set the gauge of each owner. Nodes that own nothing are removed: their ids are never reused."""
        self._owners.show({(str(node_id),): vchannels for node_id, vchannels in owned.items()})


class _Shown:
    """The exported values of a gauge with labels."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Export these values, by their labels, and no others."""
        for labels, value in values.items():
            self._gauge.labels(*labels).set(value)
        for gone in self._shown - values.keys():
            self._gauge.remove(*gone)
        self._shown = set(values)
