"""The Spark cluster of `elanus dev-cluster`, whose workers and executors can be killed."""

from __future__ import annotations

from pathlib import Path

import psutil

from elanus.devcluster.spark import Spark


class SparkCluster(Spark):
    """Two workers of two cores each."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, cores=2)

    def replace_worker(self, number: int) -> None:
        """Start another one in the place of one that was killed."""
        self.workers[number].start()

    def kill_worker(self, number: int) -> None:
        """``kill -9`` a worker and its executors at once."""
        worker = psutil.Process(self.workers[number].pid)
        _kill([worker, *worker.children(recursive=True)])
        self.workers[number].kill()  # which has nothing left to kill, and knows of it now

    def kill_executors(self) -> None:
        """``kill -9`` every executor with its Python workers; the workers start others."""
        _kill(self._family())

    def kill_python_workers(self) -> None:
        """``kill -9`` the Python processes of the executors."""
        _kill([process for process in self._family() if "python" in _name(process)])

    def _family(self) -> list[psutil.Process]:
        pids = [worker.pid for worker in self.workers if worker.pid is not None]
        return [child for pid in pids for child in psutil.Process(pid).children(recursive=True)]


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
