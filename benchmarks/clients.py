"""The parent's side of a client process: start it, call it, and start several at the same moment."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

PROJECT_ROOT = Path(__file__).parent.parent


class WorkerError(RuntimeError):
    """A worker answered with an error, or not at all."""


class StartsWorkers(Protocol):
    """An object that knows how to reach a system: see `benchmarks.systems`."""

    def worker_command(self) -> list[str]:
        """Arguments that start one client process."""


class Client:
    """One worker process.

    Args:
        command: arguments that start it.
        log: file to which its standard error is appended.
        timeout_s: longest that a call may take; a worker that is later is killed.
    """

    def __init__(self, command: Sequence[str], log: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=PROJECT_ROOT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def call(self, name: str, **arguments: Any) -> Any:
        """Make one call and wait for its result.

        Raises:
            WorkerError: the call failed, the worker died, or it took too long.
        """
        self.begin(name, **arguments)
        return self.finish()

    def begin(self, name: str, **arguments: Any) -> None:
        """Send a call without waiting; `finish` must follow."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"call": name, "arguments": arguments}), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise WorkerError(f"the client process is gone; see {self._log}") from error

    def finish(self) -> Any:
        """Result of the call that was begun.

        Raises:
            WorkerError: the call failed, the worker died, or it took too long.
        """
        assert self._process.stdout is not None
        guard = threading.Timer(self._timeout_s, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        if not line:
            raise WorkerError(f"the client process ended, or took over {self._timeout_s} s; see {self._log}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """End the worker: it leaves when its input ends, and is killed when it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it had ended already, with a call unread
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
        self._process.stdout.close()


@contextmanager
def clients(
    system: StartsWorkers, count: int, log: Path, timeout_s: float, *, connected: bool = True
) -> Iterator[list[Client]]:
    """Start `count` workers of a system and end them afterwards, whatever happens in between.

    Args:
        connected: connect them, unless the system has nothing to connect to.
    """
    with ExitStack() as stack:
        workers: list[Client] = []
        for _ in range(count):
            worker = Client(system.worker_command(), log, timeout_s)
            stack.callback(worker.close)
            workers.append(worker)
        if connected:
            all_call(workers, "connect", timeout_s=60.0)
        yield workers


def all_call(workers: Sequence[Client], name: str, **arguments: Any) -> list[Any]:
    """Make the same call in every worker at once (within a fraction of a millisecond), results in order."""
    for worker in workers:
        worker.begin(name, **arguments)
    return [worker.finish() for worker in workers]
