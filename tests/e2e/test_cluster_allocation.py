"""Dynamic allocation and authentication of a Spark cluster, by settings that operators pass on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import until
from meeting import cores, meet

from elanus.devcluster.process import ServiceProcess
from elanus.devcluster.spark import Spark
from elanus.pipeline.port import JobLost
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.server.spark_conf import parsed

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.long, pytest.mark.timeout(600)]

DEADLINE_S = 120.0
ALLOCATION = """
spark.dynamicAllocation.enabled                  true
spark.dynamicAllocation.shuffleTracking.enabled  true
spark.dynamicAllocation.initialExecutors         0
spark.dynamicAllocation.minExecutors             0
spark.dynamicAllocation.maxExecutors             2
spark.dynamicAllocation.executorIdleTimeout      1s
spark.executor.cores                             2
spark.default.parallelism                        4
"""
SECRET = "only-the-cluster-knows"
AUTHENTICATION = f"""
spark.authenticate         true
spark.authenticate.secret  {SECRET}
"""
MODULES = f"spark.executorEnv.PYTHONPATH {Path(__file__).parent}\n"


class Secured(Spark):
    """Its processes talk only to those that know the secret. ``conf``: what these are given."""

    def __init__(self, directory: Path) -> None:
        secret = directory / "secret"
        secret.write_text("only the cluster knows")
        self.conf = AUTHENTICATION.format(secret=secret)
        super().__init__(directory, cores=2)

    def _process(self, name: str, arguments: list[str], ready: str) -> ServiceProcess:
        process = super()._process(name, arguments, ready)
        known = [f"-D{setting}={value}" for setting, value in parsed(self.conf).items()]
        options = " ".join([process.environment["SPARK_DAEMON_JAVA_OPTS"], *known])
        return replace(process, environment={**process.environment, "SPARK_DAEMON_JAVA_OPTS": options})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    cluster = Secured(tmp_path_factory.mktemp("spark"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def started(cluster: Spark, scratch: Path, conf: str) -> Iterator[PipelineSession]:
    settings = SparkSettings(
        master=cluster.master, driver_host="127.0.0.1", executor_memory_mb=512, conf=parsed(conf)
    )
    session = PipelineSession.start(settings, scratch)
    try:
        yield session
    finally:
        session.stop()


def executors(session: PipelineSession) -> int:
    """How many executors there are now; Spark counts the driver as one."""
    return len(session.context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def run(session: PipelineSession, task: Callable[[str], Any], plans: list[str], cpus: int = 1) -> list[Any]:
    return session.run(task, plans, group="g", description="a job", pool="p", cpus=cpus)


def test_executors_come_with_jobs_and_go_without_them(cluster: Secured, tmp_path: Path) -> None:
    with started(cluster, tmp_path / "scratch", MODULES + cluster.conf + ALLOCATION) as session:
        assert executors(session) == 0
        assert session.slots == 4, "what it may become: as many jobs are given to Spark, which gets executors"
        plans = [f"{tmp_path}/{number}" for number in range(4)]
        forked_from = run(session, meet, plans)  # each task waits for the others: four cores at a time
        assert len(set(forked_from)) == 2, "two executors"
        until(lambda: executors(session) == 0, DEADLINE_S, "the executors are given back")
        assert run(session, cores, ["a build"], cpus=2) == [2], "one comes again for a task of two cores"


def test_a_cluster_that_authenticates_runs_jobs(cluster: Secured, tmp_path: Path) -> None:
    with started(cluster, tmp_path / "scratch", MODULES + cluster.conf) as session:
        assert run(session, cores, ["a task"]) == [1]


def test_a_cluster_that_authenticates_refuses_a_stranger(cluster: Secured, tmp_path: Path) -> None:
    """Spark tries for a minute to join the cluster."""
    with (
        pytest.raises(JobLost, match="stopped SparkContext"),
        started(cluster, tmp_path / "scratch", MODULES) as session,
    ):
        run(session, cores, ["a task"])
