"""A server as a process tree: how it is started, what it uses, and how every part of it is ended.

CPU time is the sum over the tree of user and system time *and* of the same for children already waited for,
so that a worker which came and went between two looks is counted. Memory is resident set size, per process.

A process is only ever signalled through the handle taken when it was seen as a descendant of one that we
started; psutil compares creation times, so a reused id is never hit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

Label = Callable[[psutil.Process], str]

#: A tree is at work when it uses more of one core than this.
BUSY_SHARE = 0.2


@dataclass(frozen=True)
class Usage:
    """The resources that a process tree has used so far, by role.

    Attributes:
        cpu_s: user and system seconds since each process began.
        rss_mb: resident megabytes (10⁶ bytes) now.
    """

    cpu_s: Mapping[str, float]
    rss_mb: Mapping[str, float]

    @property
    def total_cpu_s(self) -> float:
        """Over all roles."""
        return sum(self.cpu_s.values())

    @property
    def total_rss_mb(self) -> float:
        """Over all roles."""
        return sum(self.rss_mb.values())


@dataclass(frozen=True)
class _Seen:
    """One process when last seen. ``waited_s``: CPU time of ended children that it has waited for."""

    role: str
    parent: int
    own_s: float
    waited_s: float


class Meter:
    """Reads what trees of processes use, and remembers those that have ended.

    A process that ends takes its CPU time with it, unless its parent waits for it: then the parent's time
    counts it. So a tree's total could go back between two looks. The last reading of a process stays in
    the sum when it has ended and its parent's time has not grown by as much.
    """

    def __init__(self, label: Label) -> None:
        self._label = label
        self._seen: dict[int, _Seen] = {}
        self._ended: list[_Seen] = []

    def read(self, pids: Sequence[int]) -> Usage:
        """Look at the trees below `pids` now; processes that end meanwhile are left out."""
        rss_mb: dict[str, float] = defaultdict(float)
        now: dict[int, _Seen] = {}
        for process in _trees(pids):
            try:
                with process.oneshot():
                    role, times, memory = self._label(process), process.cpu_times(), process.memory_info()
                    parent = process.ppid()
            except psutil.NoSuchProcess:
                continue
            waited_s = times.children_user + times.children_system
            now[process.pid] = _Seen(role, parent, times.user + times.system, waited_s)
            rss_mb[role] += memory.rss / 1e6
        self._ended += [
            seen for pid, seen in self._seen.items() if pid not in now and self._is_lost(seen, now)
        ]
        self._seen = now
        cpu_s: dict[str, float] = defaultdict(float)
        for seen in (*now.values(), *self._ended):
            cpu_s[seen.role] += seen.own_s + seen.waited_s
        return Usage(dict(cpu_s), dict(rss_mb))

    def _is_lost(self, ended: _Seen, now: Mapping[int, _Seen]) -> bool:
        before, after = self._seen.get(ended.parent), now.get(ended.parent)
        if before is None or after is None:
            return True
        return after.waited_s - before.waited_s < ended.own_s + ended.waited_s


def usage_of(pids: Sequence[int], label: Label) -> Usage:
    """One look at the trees below `pids`."""
    return Meter(label).read(pids)


class ServerProcess:
    """One server started by the benchmark, in a session of its own so that Ctrl-C reaches only us.

    Args:
        command: argument list.
        log: file to which the server's output is appended.
        label: role of each process of its tree.
        environment: added to ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        label: Label,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._meter = Meter(label)
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        """The id of the process started; its children are found through it."""
        return self._process.pid

    def usage(self) -> Usage:
        """CPU and memory of the whole tree now."""
        return self._meter.read([self.pid])

    def check_running(self) -> None:
        """Raise when the server has ended by itself.

        Raises:
            RuntimeError: with the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            end = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the server ended with code {code}; its log ends:\n{end}")

    def kill(self) -> None:
        """End the whole tree at once, as a crash would."""
        for process in _trees([self.pid]):
            _signal(process, signal.SIGKILL)
        self._process.wait(timeout=30)

    def stop(self, grace_s: float) -> None:
        """Ask the server to end; after `grace_s`, and for whatever it leaves behind, use SIGKILL."""
        tree = _trees([self.pid])
        self._process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(tree, timeout=grace_s)
        for process in left:
            _signal(process, signal.SIGKILL)
        self._process.wait(timeout=30)


def wait_for_quiet(
    usage: Callable[[], Usage],
    limit_s: float,
    roles: Sequence[str] = (),
    quiet_s: int = 2,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when a tree has hardly used the processor for `quiet_s` seconds on end, or after `limit_s`.

    Args:
        usage: looks at the tree. roles: which must have been seen before it can be quiet: a server may
        still be starting parts of itself.
    """
    deadline = time.monotonic() + limit_s
    before, calm_s = usage(), 0
    while calm_s < quiet_s and time.monotonic() < deadline:
        sleep(1)
        now = usage()
        calm = now.total_cpu_s - before.total_cpu_s < BUSY_SHARE and set(roles) <= set(now.cpu_s)
        before, calm_s = now, calm_s + 1 if calm else 0


def _trees(pids: Sequence[int]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in pids:
        try:
            root = psutil.Process(pid)
            found += [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    return found


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        pass  # it was faster
