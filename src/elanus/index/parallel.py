"""Use several cores for one search, with plain threads.

faiss and numpy release the interpreter lock, so threads that each take a share of the queries (or of the
rows) run in parallel and synchronize once, at the end. faiss's own parallelism, an OpenMP team inside a call,
is switched off for searches: its threads spin while they wait for each other. On an idle machine
that is as fast; with other work on the machine (a server under load always has some) a batch of 100 queries
took 17.8 ms on two OpenMP threads and 6.5 ms on one.

A search is divided into the same shares however busy the machine is, so that its answer does not depend on
that; among rows with equal scores, which ones are returned may. Only the number of threads that work on the
shares does: divided searches share the cores, and short ones neither ask nor count.

The number of OpenMP threads is a property of the thread that calls faiss, so it is set in every thread before
every search: another caller may have left a different number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from elanus.index.library import faiss

_LOAD = Path("/proc/loadavg")
PARALLEL_QUERIES_MIN = 32
"""Smaller batches stay on one thread: starting another costs 0.1 ms, as much as a search."""

Share = TypeVar("Share")
Result = TypeVar("Result")


def workers(threads: int, queries: int) -> int:
    """Return how many of the allowed threads a batch of this many queries uses."""
    return threads if queries >= PARALLEL_QUERIES_MIN else 1


def shares_of(queries: npt.NDArray[Any], threads: int) -> list[npt.NDArray[Any]]:
    """Split queries (nq, d) into one slice of rows for each thread that should work on them."""
    count = workers(threads, len(queries))
    return [queries] if count == 1 else np.array_split(queries, count)


class SpareCores:
    """Shares this many cores among divided searches: each has its caller's, and what is spare when it begins.

    For any thread. Nobody waits: a search that finds none works through its shares alone. ``running``: how
    many threads of the whole machine run or wait for a core, the caller included.
    """

    def __init__(self, count: int, running: Callable[[], int]) -> None:
        self._count = count
        self._running = running
        self._lock = threading.Lock()
        self._used = 0

    @contextmanager
    def taken(self, wanted: int) -> Iterator[int]:
        """Yield how many of the ``wanted`` cores the caller may use in addition to its own."""
        running = self._running()
        with self._lock:
            granted = max(0, min(wanted, self._count - max(self._used + 1, running)))
            self._used += 1 + granted
        try:
            yield granted
        finally:
            with self._lock:
                self._used -= 1 + granted


def running_threads() -> int:
    """Return how many threads of the machine run or wait for a core now; 1 where the system does not say."""
    try:
        return int(_LOAD.read_text().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):
        return 1


_spare = SpareCores(os.cpu_count() or 1, running_threads)
"""Those of the machine, for all query nodes of the process."""


def fan_out(
    work: Callable[[Share], Result],
    shares: Sequence[Share],
    threads: int | None = None,
    cores: SpareCores = _spare,
) -> list[Result]:
    """Call ``work`` on every share, here and in a thread for each spare core. Return the results in order.

    ``threads``: how many at most, by default one for each share. Raises what ``work`` raises.
    """
    if len(shares) == 1:
        return [_alone(work, shares[0])]
    with cores.taken(min(threads or len(shares), len(shares)) - 1) as helpers:
        if not helpers:
            return [_alone(work, share) for share in shares]
        results: dict[int, Result] = {}
        places = iter(range(len(shares)))

        def take_shares() -> None:
            for place in places:  # each place goes to one thread: `next` of a range is atomic
                results[place] = _alone(work, shares[place])

        try:
            others = [_threads().submit(take_shares) for _ in range(helpers)]
        except RuntimeError:
            # The system allows no more threads now. What was submitted may still run, so nothing is shared
            # with it: it finds no place any more, or its result is not used.
            list(places)
            return [_alone(work, share) for share in shares]
        try:
            take_shares()
        finally:
            begun = [other for other in others if not other.cancel()]
            wait(begun)
        for other in begun:
            other.result()
        return [results[place] for place in range(len(shares))]


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads that help others' searches. They stay: to start one takes as long as a short search."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="search")


os.register_at_fork(after_in_child=_threads.cache_clear)


def _alone(work: Callable[[Share], Result], share: Share) -> Result:
    faiss.omp_set_num_threads(1)
    return work(share)


@contextmanager
def openmp_threads(threads: int) -> Iterator[None]:
    """Set how many cores faiss calls of this thread use within the context; restore the number afterwards."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
