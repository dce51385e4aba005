"""The list of metrics, the objects made from it, and their names."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from elanus.metrics import SPECS, CounterSpec, HistogramSpec, Metrics

UNITS = ("_total", "_seconds", "_ms", "_bytes", "_ratio")
COUNTS_OF_THINGS = {
    "elanus_owned_vchannels",
    "elanus_quarantined_entries",
    "elanus_segments",
    "elanus_pipeline_up",
    "elanus_spark_awake",
    "elanus_jobs_running",
    "elanus_recall_samples",
    "elanus_recall_missed",
    "elanus_resource_groups",
    "elanus_resource_group_missing_nodes",
}


def made_by(metrics: Metrics) -> dict[str, MetricWrapperBase]:
    return {
        metric.describe()[0].name: metric
        for metric in vars(metrics).values()
        if isinstance(metric, MetricWrapperBase)
    }


def test_every_spec_is_made_and_nothing_else_is() -> None:
    # prometheus-client keeps a counter's name without the suffix that it writes
    assert set(made_by(Metrics())) == {spec.name.removesuffix("_total") for spec in SPECS}


def test_names_end_in_their_unit() -> None:
    assert [s.name for s in SPECS if not s.name.endswith(UNITS) and s.name not in COUNTS_OF_THINGS] == []


def test_counters_and_only_counters_are_totals() -> None:
    for spec in SPECS:
        assert spec.name.endswith("_total") == isinstance(spec, CounterSpec), spec.name


def test_buckets_ascend() -> None:
    for spec in SPECS:
        if isinstance(spec, HistogramSpec):
            assert spec.buckets
            assert list(spec.buckets) == sorted(set(spec.buckets)), spec.name


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.rows_inserted.inc(5)
    assert one.registry.get_sample_value("elanus_rows_inserted_total") == 5
    assert other.registry.get_sample_value("elanus_rows_inserted_total") == 0
