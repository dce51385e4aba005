"""The configuration of a Spark session: our settings of Spark, and Spark's own that follow from them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from elanus.pipeline.class_archive import quoted
from elanus.pipeline.java import JavaPreference

if TYPE_CHECKING:
    from pyspark import SparkConf  # those who start processes that load Spark do not load it

AUTO = "auto"
"""The value of a setting that Spark, or this process, determines by itself."""
SLOTS_MIN = 2
"""Tasks at a time on one machine, at least: one long task must leave room for a short one."""
TRIES_MAX = 4
"""Runs of a task that fails for a reason that may pass."""
_COPIES = 2
"""A task's rows, and those of one shard once more while they are sorted."""
_PYTHON_MB = 512
"""The libraries of the workers of one executor, which share most of it, and the JVM's own overhead."""
_LOCAL = re.compile(r"local\[(\d+|\*)\]")
_LOCAL_TRIES = re.compile(r"local(?:\[[^,\]]+(?:, *(\d+))?\])?")
SPARK_FILES, JVM_FILES = "spark", "tmp"
"""Directories below the session's scratch directory: Spark's blocks and shuffles, and the JVM's temporary
files (libraries that it unpacks, for example)."""
_WAIT_POLICY = "spark.executorEnv.OMP_WAIT_POLICY"
"""How a thread of an index build waits for the others. By default it spins for milliseconds, thousands of
times in a build, on a processor that other tasks and the online side could use."""
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_NEVER_MS = 365 * 24 * 3600 * 1000
_NO_SHARED_COUNTERS = "-XX:-UsePerfData"
"""Without it Java keeps a file in the system's temporary directory, which a killed JVM leaves there."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``master``: Spark's URL; ``local[*]`` means as many slots as processors, at least `SLOTS_MIN`.

    ``driver_host``, ``executor_memory_mb``, ``executor_cores`` (0: all of a worker), ``cores_max`` (of all
    workers together; 0: all there are) and ``executor_python`` (this one by default) are for clusters.
    ``python_memory_mb``, of use with ``executor_cores``: what the rows of one task take in its Python worker;
    a cluster's manager that limits the memory of executors has to know it. ``conf`` overrides any Spark
    setting, the ones made here too.
    """

    master: str = "local[*]"
    app_name: str = "elanus"
    driver_memory_mb: int = 1024
    java: JavaPreference = "auto"
    ui: bool = False
    driver_host: str = AUTO
    executor_memory_mb: int = 1024
    executor_cores: int = 0
    cores_max: int = 0
    executor_python: str = AUTO
    python_memory_mb: int = 512
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def spark_conf(
    settings: SparkSettings, scratch: Path, log_settings: Path, java_options: str = ""
) -> dict[str, str]:
    """Return all Spark settings of a session, the ones in ``settings.conf`` last. ``java_options``: further
    ones of the driver's JVM."""
    conf = {
        "spark.app.name": settings.app_name,
        "spark.master": settings.master,
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.driver.extraJavaOptions": " ".join(
            (
                f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
                f"-Djava.io.tmpdir={quoted(scratch / JVM_FILES)}",
                _NO_SHARED_COUNTERS,
                *((java_options,) if java_options else ()),
            )
        ),
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.python.daemon.module": "elanus.pipeline.daemon",
        "spark.python.worker.reuse": "true",
        _WAIT_POLICY: "passive",
        "spark.local.dir": str(scratch / SPARK_FILES),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if settings.is_local:
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        conf["spark.driver.extraJavaOptions"] += f" {_QUICK_JVM}"
        # A process that stood still for two minutes would take its only executor, itself, for lost. Its tasks
        # would run twice, and Spark 4 cannot register it again: it looks for the endpoint of a cluster.
        conf["spark.storage.blockManagerHeartbeatTimeoutMs"] = str(_NEVER_MS)
    else:
        conf["spark.executor.memory"] = f"{settings.executor_memory_mb}m"
        if settings.executor_cores:
            conf["spark.executor.cores"] = str(settings.executor_cores)
            overhead_mb = settings.executor_cores * settings.python_memory_mb * _COPIES + _PYTHON_MB
            conf["spark.executor.memoryOverhead"] = f"{overhead_mb}m"
        if settings.cores_max:
            conf["spark.cores.max"] = str(settings.cores_max)
        if settings.driver_host != AUTO:
            conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = settings.driver_host
    if local := _LOCAL.fullmatch(settings.master):
        slots = max(SLOTS_MIN, os.cpu_count() or 1) if local[1] == "*" else int(local[1])
        conf["spark.master"] = f"local[{slots},{TRIES_MAX}]"
    else:
        conf["spark.task.maxFailures"] = str(TRIES_MAX)
    return conf | dict(settings.conf)


def tries_of(conf: SparkConf) -> int:
    """Return how often a session with these settings runs a task that fails: in one JVM, what its URL
    says."""
    master = conf.get("spark.master") or ""
    if local := _LOCAL_TRIES.fullmatch(master):
        return int(local[1] or 1)
    return int(conf.get("spark.task.maxFailures") or TRIES_MAX)
