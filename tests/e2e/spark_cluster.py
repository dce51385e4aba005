"""A Spark cluster on loopback, from the pyspark package: a master and workers that can be killed.

Processes are started by `spark-class` and stopped by their ids, with what they started.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psutil
import pyspark
from harness import until

from elanus.pipeline.java import java_home

START_DEADLINE_S = 120.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SparkCluster:
    """``url`` is what `pipeline.spark_master` takes. Each worker offers two cores."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._home = Path(pyspark.__path__[0])
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self.workers: list[psutil.Process] = []

    def start(self) -> SparkCluster:
        master, log = self._start("master", _MASTER)
        self.url = self._said(master, log, r"Starting Spark master at (spark://\S+)")
        self.workers = [self._start_worker(n) for n in range(2)]
        return self

    def _start_worker(self, number: int) -> psutil.Process:
        work = ["--cores", "2", "--memory", "1g", "--work-dir", str(self._directory / f"work-{number}")]
        process, log = self._start(f"worker-{number}", _WORKER, *work, self.url)
        self._said(process, log, "(Successfully registered with master)")
        return psutil.Process(process.pid)

    def replace_worker(self, number: int) -> None:
        """Start another one in the place of one that was killed."""
        self.workers[number] = self._start_worker(number)

    def kill_worker(self, number: int) -> None:
        """``kill -9`` a worker and its executors at once."""
        _kill([self.workers[number], *self.workers[number].children(recursive=True)])

    def kill_executors(self) -> None:
        """``kill -9`` every executor with its Python workers; the workers start others."""
        _kill([child for worker in self.workers for child in worker.children(recursive=True)])

    def kill_python_workers(self) -> None:
        """``kill -9`` the Python processes of the executors."""
        family = [child for worker in self.workers for child in worker.children(recursive=True)]
        _kill([process for process in family if "python" in _name(process)])

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                parent = psutil.Process(process.pid)
                _kill([parent, *parent.children(recursive=True)])
            process.wait()

    def _start(self, name: str, main: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._directory / f"{name}-{len(self._processes)}.log"
        environ = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "JAVA_HOME": str(java_home(self._directory)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [self._home / "bin" / "spark-class", main, "--host", "127.0.0.1", "--port", "0"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*map(str, command), "--webui-port", "0", *arguments],
                stdout=output,
                stderr=output,
                env=environ,
            )
        self._processes.append(process)
        return process, log

    def _said(self, process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
        """The first group of the first match in what a process printed."""

        def look() -> re.Match[str] | None:
            text = log.read_text(errors="replace")
            assert process.poll() is None, f"it ended with exit code {process.returncode}: {text}"
            return re.search(pattern, text)

        found = until(look, START_DEADLINE_S, pattern)
        assert found is not None
        return found[1]


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
