"""Report processes that end on their own and start them again; the others keep running.

The first restart comes after `BACKOFF_S`. A process that soon ends again waits twice as long each time, up to
`BACKOFF_MAX_S`; a process that ran for `STEADY_S` starts over at `BACKOFF_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from elanus.devcluster.process import ServiceProcess

BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0
STEADY_S = 60.0


@dataclass(slots=True)
class _Watched:
    """``due_s``: when to start it again, ``None`` while it runs. ``expected``: it was started again and has
    not answered since."""

    process: ServiceProcess
    started_s: float
    backoff_s: float = BACKOFF_S
    due_s: float | None = None
    expected: bool = False


class Restarts:
    """``report`` is called with one line for each end, and with one when the process is ready again.

    Used by the thread that started the processes (`elanus.devcluster.die_with_parent`).
    """

    def __init__(
        self,
        processes: Iterable[ServiceProcess],
        report: Callable[[str], None],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._monotonic_s = monotonic_s
        self._watched = [_Watched(process, monotonic_s()) for process in processes]

    def check(self) -> None:
        """Report processes that ended since the last call, and start those that are due."""
        for watched in self._watched:
            self._check(watched, self._monotonic_s())

    def _check(self, watched: _Watched, now_s: float) -> None:
        process = watched.process
        if watched.due_s is not None:
            if now_s >= watched.due_s:
                watched.due_s, watched.started_s, watched.expected = None, now_s, True
                process.launch()
        elif not process.running:
            self._ended(watched, now_s)
        elif watched.expected and process.answers():
            watched.expected = False
            self._report(f"{process.name} is ready again")

    def _ended(self, watched: _Watched, now_s: float) -> None:
        if now_s - watched.started_s >= STEADY_S:
            watched.backoff_s = BACKOFF_S
        process, pause_s = watched.process, watched.backoff_s
        watched.due_s = now_s + pause_s
        watched.backoff_s = min(2 * pause_s, BACKOFF_MAX_S)
        code = process.exit_code or 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        self._report(f"{process.name} has ended {how}; started again in {pause_s:g} s, see {process.output}")
