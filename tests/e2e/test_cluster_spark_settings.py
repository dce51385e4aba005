"""Settings of Spark that operators pass on (`pipeline.spark_conf`), on a cluster of two hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from straggling import straggle

from elanus.devcluster.process import ServiceProcess
from elanus.devcluster.spark import Spark
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.server.spark_conf import parsed

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.long, pytest.mark.timeout(900)]

SETTINGS = """
spark.speculation                 true
spark.speculation.interval        100ms
spark.speculation.minTaskRuntime  100ms
spark.speculation.quantile        0.5
spark.speculation.multiplier      1
spark.eventLog.enabled            true
spark.eventLog.compress           false
spark.executorEnv.PYTHONPATH      {modules}
spark.eventLog.dir                {events}
"""
DESCRIPTION = "a job with a straggler"


class TwoHosts(Spark):
    """Each worker on a loopback address of its own: Spark repeats no task on the host where it runs."""

    def _process(self, name: str, arguments: list[str], ready: str) -> ServiceProcess:
        number = name.removeprefix("worker ")
        host = ["--host", f"127.0.0.{number}"] if number.isdecimal() else []
        return super()._process(name, [arguments[0], *host, *arguments[1:]], ready)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Spark]:
    cluster = TwoHosts(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_a_straggler_is_repeated_elsewhere_and_counts_once(cluster: Spark, tmp_path: Path) -> None:
    events, plans = tmp_path / "events", tmp_path / "plans"
    events.mkdir()
    plans.mkdir()
    given = SETTINGS.format(modules=Path(__file__).parent, events=events.as_uri())
    settings = SparkSettings(
        master=cluster.master, driver_host="127.0.0.1", executor_memory_mb=512, conf=parsed(given)
    )
    session = PipelineSession.start(settings, tmp_path / "scratch")
    try:
        work = [(str(plans), number == 0) for number in range(4)]
        outcomes = session.run(straggle, work, group="g", description=DESCRIPTION, pool="p")
    finally:
        session.stop()
    assert outcomes == ["second", "first", "first", "first"]

    files = events.rglob("events_*")
    logged = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    jobs = [event for event in logged if event["Event"] == "SparkListenerJobStart"]
    assert DESCRIPTION in [job["Properties"].get("spark.job.description") for job in jobs]
    tried: list[dict[str, Any]] = [event["Task Info"] for event in logged if "Task Info" in event]
    assert any(info["Speculative"] for info in tried)
