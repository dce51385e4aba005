"""The settings of the pipeline as Spark receives them, and the threads of index builds."""

from __future__ import annotations

from elanus.server.pipeline_role import build_cpus, build_threads, builds_at_once
from elanus.server.settings_load import load
from elanus.server.settings_page import as_yaml
from elanus.server.settings_pipeline import PipelineSettings
from elanus.server.spark_conf import parsed


def test_settings_of_spark_are_read_as_spark_reads_its_own_file() -> None:
    text = """
        # for everybody
        spark.speculation          true
        spark.eventLog.dir=file:/logs of spark
        spark.a: b=c
    """
    assert parsed(PipelineSettings(spark_conf=text).spark_conf) == {
        "spark.speculation": "true",
        "spark.eventLog.dir": "file:/logs of spark",
        "spark.a": "b=c",
    }


def test_the_secrets_of_spark_are_not_shown_with_the_settings() -> None:
    lines = ["spark.authenticate true", "spark.eventLog.dir file:/secret/place"]
    secrets = ["spark.authenticate.secret abc", "spark.ssl.keyStorePassword=def", "spark.x.ACCESS.KEY: ghi"]
    shown = as_yaml(load(None, {"pipeline.spark_conf": "\n".join([lines[0], *secrets, lines[1]])}))
    assert all(line in shown for line in lines), shown
    assert not any(secret[-3:] in shown for secret in secrets), shown


def test_builds_use_the_cores_of_the_cluster_and_not_of_the_data_node() -> None:
    def threads(**given: object) -> int:
        return build_threads(PipelineSettings.model_validate(given), processors=16)

    assert threads() == 16
    shares = {at_once: threads(builds_at_once=at_once) for at_once in (1, 3, 16, 40)}
    assert shares == {1: 16, 3: 5, 16: 1, 40: 1}, "those that run together have the processors together"
    assert threads(spark_master="spark://host:7077") == 1
    assert threads(spark_master="spark://host:7077", executor_cores=4) == 4
    assert threads(spark_master="spark://host:7077", executor_cores=4, build_threads=2) == 2


def test_builds_follow_the_cores_of_a_cluster() -> None:
    def room(slots: int, threads: int, **given: object) -> int:
        return builds_at_once(PipelineSettings.model_validate(given), slots, threads)

    assert room(16, 16) == 1, "on one machine a build uses all processors"
    cluster = {"spark_master": "spark://host:7077", "executor_cores": 4}
    assert [room(slots, 4, **cluster) for slots in (2, 8, 9, 800)] == [1, 1, 2, 199], "a slot is for flushes"
    assert room(800, 4, **cluster, builds_at_once=50) == 50


def test_spark_counts_the_cores_of_a_build_where_an_executor_has_them() -> None:
    def cpus(threads: int, **given: object) -> int:
        return build_cpus(PipelineSettings.model_validate(given), threads)

    assert cpus(16) == 1, "one JVM counts one"
    cluster = {"spark_master": "spark://host:7077"}
    assert cpus(4, **cluster, executor_cores=4) == 4
    assert cpus(8, **cluster, executor_cores=4) == 1, "no executor could take it"
    assert cpus(4, **cluster) == 1, "the cores of an executor are not known"
