"""A Spark standalone cluster on loopback: one master and some workers, from the pip package.

Tasks run in the Python interpreter that runs this module, with its packages: the workers' environment passes
``PYTHONPATH`` on to them. Java is found in the same way as for Elanus's own driver.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elanus.devcluster.process import ServiceFailed, ServiceProcess, free_port, http_ok
from elanus.pipeline.java import JavaNotFound, java_home

WORKERS = 2
_HOST = "127.0.0.1"
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Spark:
    """``master`` is the URL for ``pipeline.spark_master``. ``cores``: per worker, one task each.

    ``workers``: the worker processes, each of which can be killed and started again.
    """

    name = "spark"

    def __init__(
        self, directory: Path, *, workers: int = WORKERS, cores: int = 1, memory_mb: int = 1024
    ) -> None:
        """Raises `ServiceFailed` if no Java is found."""
        self._directory = directory / "spark"
        self._cores = cores
        self._memory_mb = memory_mb
        self._environment = _environment(self._directory)
        port, web_port = free_port(), free_port()
        self.master = f"spark://{_HOST}:{port}"
        self._status = f"http://{_HOST}:{web_port}/json/"
        master = self._process(
            "master",
            ["master.Master", "--port", str(port), "--webui-port", str(web_port)],
            '"status" : "ALIVE"',
        )
        self.workers = [self._worker(number, workers) for number in range(1, workers + 1)]
        self._processes = [master, *self.workers]

    @property
    def endpoints(self) -> Mapping[str, str]:
        return {"spark": self.master}

    @property
    def processes(self) -> Sequence[ServiceProcess]:
        return self._processes

    @property
    def running(self) -> bool:
        return all(process.running for process in self._processes)

    def start(self) -> None:
        """Start master and workers. Raises `ServiceFailed`."""
        try:
            self._processes[0].start()
            for process in self._processes:
                process.launch()
            for process in self._processes:
                process.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()

    def _worker(self, number: int, workers: int) -> ServiceProcess:
        """Return a worker process. Ready when all workers are: the master only reports how many have
        joined."""
        arguments = [
            "worker.Worker",
            *("--webui-port", str(free_port())),
            *("--cores", str(self._cores)),
            *("--memory", f"{self._memory_mb}m"),
            *("--work-dir", str(self._directory / "work")),
            self.master,
        ]
        return self._process(f"worker {number}", arguments, f'"aliveworkers" : {workers}')

    def _process(self, name: str, arguments: list[str], ready: str) -> ServiceProcess:
        program = Path(self._environment["SPARK_HOME"], "bin", "spark-class")
        main, *rest = arguments
        return ServiceProcess(
            name=f"spark {name}",
            command=[str(program), f"org.apache.spark.deploy.{main}", "--host", _HOST, *rest],
            output=self._directory / f"{name.replace(' ', '-')}.log",
            ready=lambda: http_ok(self._status, ready),
            environment=self._environment,
        )


def _environment(directory: Path) -> Mapping[str, str]:
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise ServiceFailed("PySpark is not installed: pip install elanus")
    try:
        java = java_home(directory)
    except JavaNotFound as error:
        raise ServiceFailed(str(error)) from None
    return {
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_JVM,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(Path(package.origin).parent),
        "SPARK_LOCAL_IP": _HOST,
    }
