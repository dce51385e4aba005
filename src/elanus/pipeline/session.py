"""Spark in the pipeline process, and the one way in which jobs run on it.

Elanus keeps Spark *thin*: a job's tasks receive a small plan each, do their own reading and writing
with pyarrow, and return a small outcome. No vector passes through the JVM. The session is set up for
that: a small heap, the JVM's quick compiler (there is no hot Java code), no web page unless asked for,
loopback only when it runs on one machine, and Python workers that stay alive between jobs.

`PipelineSession.run` is all that the jobs see of Spark. It is synchronous and may be called from many
threads at once; each call is one Spark job in a group of its own, so that it can be cancelled, and in a
named pool of the fair scheduler, so that jobs of one kind do not queue behind those of another.

Left out: what runs next to what. That is decided in `elanus.pipeline.jobs`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import psutil
import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, SparkConf, SparkContext
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests

from elanus.core.faults import JobFault
from elanus.core.jobs import JobProgress
from elanus.pipeline.class_archive import ClassArchive
from elanus.pipeline.java import find_java, launcher_home
from elanus.pipeline.port import JobCancelled, JobLost, RunningJob
from elanus.pipeline.spark_conf import AUTO, JVM_FILES, SPARK_FILES, SparkSettings, spark_conf, tries_of
from elanus.pipeline.task_failures import FailureReports
from elanus.pipeline.worker import Guarded, TaskFailure, process_id
from elanus.storage.without_pandas import hidden

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")

_log = structlog.get_logger("pipeline")

_TASK_FILES = "tasks"
_TEMPORARY = (SPARK_FILES, JVM_FILES, _TASK_FILES)
"""The directories below ``scratch`` that are emptied at the start, the unfinished files of tasks too."""
_JVM_EXIT_TIMEOUT_S = 30
_LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p spark %c{1}: %m%n%ex
# Spark takes the root's level from its Python gateway when it finds one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


class _JvmGone(JobFault):
    """The JVM does not answer, or answers with an error."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j logs each broken call with its stack before it raises it; who catches the error reports it."""
    return record.module != "java_gateway"


@contextlib.contextmanager
def _jvm_errors() -> Iterator[None]:
    """Turn errors of a call into the JVM into `_JvmGone`."""
    try:
        yield
    except (Py4JError, OSError) as error:
        raise _JvmGone(str(error)) from error


class PipelineSession:
    """A running Spark session. Create it with `start`, end it with `stop`.

    ``task_scratch``: a local directory for the unfinished files of tasks, emptied at the start. ``archive``:
    of the classes of its JVM, which may not be there yet; ``None`` where none can be used.
    """

    def __init__(
        self,
        context: SparkContext,
        task_scratch: Path,
        *,
        is_local: bool = False,
        archive: ClassArchive | None = None,
    ) -> None:
        self.archive = archive
        self._is_local = is_local
        self.task_scratch = task_scratch
        self.context = context
        self._running: dict[str, bool] = {}
        """The groups of the jobs in `run`, and whether each has been cancelled."""
        self._failures: FailureReports | None = None
        self._profiles: dict[int, ResourceProfile] = {}
        """By the cores of a task: each that is made stays with Spark."""
        self._counts_cpus = True
        self._slots = 0
        self._lock = threading.Lock()

    @classmethod
    def start(cls, settings: SparkSettings, scratch: Path, java_options: str = "") -> PipelineSession:
        """Start the JVM and the session: several seconds. One session at a time per process.

        ``scratch``: a local directory for all temporary files of Spark and its JVM, the log settings, the
        launcher of a bundled Java and the archive of Java classes. Files that a killed JVM left there are
        removed first. ``java_options``: in place of those that read the archive. Sets ``JAVA_HOME``,
        ``SPARK_HOME`` and ``PYSPARK_PYTHON`` in this process's environment, where Spark reads them. Raises
        `elanus.pipeline.java.JavaNotFound`.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        for left_behind in _TEMPORARY:
            shutil.rmtree(scratch / left_behind, ignore_errors=True)
        (scratch / JVM_FILES).mkdir(exist_ok=True)  # Java does not make it
        java, spark_home = find_java(settings.java), Path(sys.modules["pyspark"].__path__[0])
        os.environ["JAVA_HOME"] = str(launcher_home(scratch, java))
        os.environ["SPARK_HOME"] = str(spark_home)
        own = settings.is_local or settings.executor_python == AUTO
        os.environ["PYSPARK_PYTHON"] = sys.executable if own else settings.executor_python
        if settings.is_local:
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        # A line for every remote call would drown everything else in the process's log.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        logging.getLogger().addFilter(_is_not_of_py4j)  # it logs broken calls there; added once at most
        archive = ClassArchive(scratch, java, spark_home) if settings.is_local else None
        options = java_options or (archive.reading() if archive else "")
        try:
            context = _started(settings, scratch, options)
        except Exception as error:
            if archive is None or not options or options != archive.reading():
                raise
            _log.warning("Spark did not start from its class archive; trying without", error=str(error))
            archive.discard()
            SparkContext._gateway = SparkContext._jvm = None
            context = _started(settings, scratch, "")
        return cls(context, scratch / _TASK_FILES, is_local=settings.is_local, archive=archive)

    @property
    def slots(self) -> int:
        """How many tasks run at a time; the last number once the JVM is gone."""
        with contextlib.suppress(_JvmGone), _jvm_errors():
            self._slots = self.context.defaultParallelism
        return self._slots

    def warm_up(self) -> None:
        """Start the Python workers, so that the first job finds them."""
        slots = range(self.slots)
        self.run(process_id, slots, group="warm-up", description="start Python workers", pool="warm-up")

    def run(
        self,
        task: Callable[[Plan], Outcome],
        plans: Sequence[Plan],
        *,
        group: str,
        description: str,
        pool: str,
        cpus: int = 1,
    ) -> list[Outcome]:
        """Run one Spark task per plan (`elanus.pipeline.port.JobSession.run`)."""
        with self._lock:
            self._running[group] = False
            reports = self._failures = self._failures or FailureReports(self.context, self._end)
        try:
            self.context.setJobGroup(group, description, interruptOnCancel=True)
            self.context.setLocalProperty("spark.scheduler.pool", pool)
            guarded = Guarded(task, tries_of(self.context.getConf()), group, reports.channel)
            results = self._given(plans, cpus).map(guarded).collect()
        except Exception as error:
            if self._running[group]:
                raise JobCancelled(description) from None
            if (failure := reports.first(group)) is not None:
                raise failure.as_error(description) from None
            raise JobLost(f"{description}: {_first_line(error)}") from error
        finally:
            reports.forget(group)
            with self._lock:
                del self._running[group]
        outcomes: list[Outcome] = []
        for result in results:
            if isinstance(result, TaskFailure):
                raise result.as_error(description)
            outcomes.append(result)
        return outcomes

    def _given(self, plans: Sequence[Plan], cpus: int) -> RDD[Plan]:
        """Return the plans as inputs of tasks for which Spark counts so many cores each.

        In one JVM, and under some masters, it counts one.
        """
        given = self.context.parallelize(plans, len(plans))
        if cpus == 1 or self._is_local or not self._counts_cpus:
            return given
        profile = self._profiles.get(cpus)
        if profile is None:
            profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build
            self._profiles[cpus] = profile
        try:
            return given.withResources(profile)
        except Py4JJavaError as error:
            self._counts_cpus = False
            _log.warning("Spark's master counts one core for each task", error=_first_line(error))
            return self.context.parallelize(plans, len(plans))  # the first one would end Spark

    def running_job(self, group: str) -> RunningJob | None:
        """Return how far the group's job is, by Spark's own account of its tasks."""
        try:
            with _jvm_errors():
                tracker = self.context.statusTracker()
                job_ids = tracker.getJobIdsForGroup(group)
                infos = [tracker.getJobInfo(job_id) for job_id in job_ids]
                stage_ids = {stage for info in infos if info is not None for stage in info.stageIds}
                stages = [stage for stage in map(tracker.getStageInfo, stage_ids) if stage is not None]
                ui = self.context.uiWebUrl
        except _JvmGone:
            return None  # the caller of `run` receives the error
        if not stages:
            return None
        progress = JobProgress(sum(s.numTasks for s in stages), sum(s.numCompletedTasks for s in stages))
        return RunningJob(progress, f"{ui}/jobs/job/?id={max(job_ids)}" if ui else "")

    def cancel(self, group: str) -> None:
        """Cancel the group's job. Only what Spark has begun can be cancelled: repeat until `run` ends."""
        with self._lock:
            if group not in self._running:
                return
            self._running[group] = True
        self._end(group)

    def _end(self, group: str) -> None:
        with contextlib.suppress(_JvmGone), _jvm_errors():  # without a JVM `run` ends by itself
            self.context.cancelJobGroup(group)

    def is_alive(self) -> bool:
        """Whether the JVM still runs, with its session. Once it is gone only a new process helps.

        The session ends alone when the cluster's master removes it.
        """
        gateway = self.context._gateway
        if gateway is None or gateway.proc.poll() is not None:
            return False
        try:
            with _jvm_errors():
                context = self.context._jsc
                return context is not None and not context.sc().isStopped()
        except _JvmGone:
            return False

    def stop(self, exit_timeout_s: float | None = None) -> None:
        """End the session and the JVM, if that still runs.

        Raises `subprocess.TimeoutExpired` if the JVM has not ended after ``exit_timeout_s``, by default half
        a minute.
        """
        gateway = self.context._gateway
        if gateway is None or gateway.proc.poll() is not None:
            return
        try:
            with _jvm_errors():
                self.context.stop()
                gateway.shutdown()
        except _JvmGone as error:
            # A JVM that dies refuses connections a while before its process is gone. The wait below
            # distinguishes that from anything worse.
            _log.debug("JVM did not answer the end of its session", error=str(error))
        gateway.proc.stdin.close()  # what the JVM takes as its parent's end
        gateway.proc.wait(_JVM_EXIT_TIMEOUT_S if exit_timeout_s is None else exit_timeout_s)
        SparkContext._gateway = SparkContext._jvm = None

    def stop_for_good(self) -> None:
        """As `stop`, for a process that ends now: no session can be started in it again.

        A local JVM on which no job runs is killed, with its Python workers. Their orderly end takes most of
        a second and would only remove files that are removed here, and again at the next start. Raises what
        `stop` raises.
        """
        gateway = self.context._gateway
        with self._lock:
            is_idle = not self._running
        if gateway is None or gateway.proc.poll() is not None or not (self._is_local and is_idle):
            self.stop()
            return
        # The end of the JVM ends its connection for accumulators; that is no error here.
        setattr(self.context._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010 - a method
        workers = psutil.Process(gateway.proc.pid).children(recursive=True)
        gateway.proc.kill()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        gateway.proc.wait(_JVM_EXIT_TIMEOUT_S)
        for left_behind in (SPARK_FILES, JVM_FILES):
            shutil.rmtree(self.task_scratch.with_name(left_behind), ignore_errors=True)


def _started(settings: SparkSettings, scratch: Path, java_options: str) -> SparkContext:
    """Start a context without Spark's SQL: jobs have no use for it, and it takes a third of the JVM's time to
    start, and 60 MB."""
    log_settings = scratch / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS)
    conf = SparkConf().setAll(list(spark_conf(settings, scratch, log_settings, java_options).items()))
    # At its first call into the JVM PySpark looks for NumPy by a module of tests, which imports pandas.
    with hidden("pandas"):
        return SparkContext(conf=conf)


def _first_line(error: Exception) -> str:
    """Return the message of a Spark error, without the Java stack trace."""
    java_error = getattr(error, "java_exception", None)
    text = str(error) if java_error is None else str(java_error.getMessage())
    return text.strip().split("\n", 1)[0]
