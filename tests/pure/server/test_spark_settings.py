"""The settings of the pipeline as Spark receives them, and the threads of index builds."""

from __future__ import annotations

from elanus.server.pipeline_role import build_threads
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


def test_builds_use_the_cores_of_the_cluster_and_not_of_the_data_node() -> None:
    def threads(**given: object) -> int:
        return build_threads(PipelineSettings.model_validate(given), processors=16)

    assert threads() == 16
    assert threads(spark_master="spark://host:7077") == 1
    assert threads(spark_master="spark://host:7077", executor_cores=4) == 4
    assert threads(spark_master="spark://host:7077", executor_cores=4, build_threads=2) == 2
