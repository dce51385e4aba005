"""How many tasks a session runs at a time, and how many threads a task may use."""

from __future__ import annotations

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from elanus.spark.releases import over_connect

_COUNTED = 1 << 14
"""Rows of the range whose partitions are counted: more cores than that are not used."""


def slots(spark: SparkSession) -> int:
    """Return how many tasks the session runs at a time, as far as it says.

    A session of Spark Connect has no context to ask. There a small job counts the partitions that Spark gives
    a range of its own accord: as many as the cluster has cores.
    """
    configured = spark.conf.get("spark.default.parallelism", None)
    if configured:
        return int(configured)
    if not over_connect(spark):
        return spark.sparkContext.defaultParallelism
    parts = spark.range(_COUNTED).select(sf.spark_partition_id()).distinct().count()
    return max(1, parts)


def threads() -> int:
    """Return how many processors this task has; 1 outside of a task."""
    context = TaskContext.get()
    return 1 if context is None else context.cpus()
