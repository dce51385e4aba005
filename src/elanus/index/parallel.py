"""Use several cores for one search, with plain threads.

faiss and numpy release the interpreter lock, so threads that each take a share of the queries (or of the
rows) run in parallel and synchronise once, at the end. faiss's own parallelism, an OpenMP team inside a call,
is switched off for searches: its threads spin while they wait for each other. On an idle machine
that is as fast; with other work on the machine (a server under load always has some) a batch of 100 queries
took 17.8 ms on two OpenMP threads and 6.5 ms on one.

The number of OpenMP threads is a property of the thread that calls faiss, so it is set in every thread before
every search: another caller may have left a different number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import faiss
import numpy as np
import numpy.typing as npt

PARALLEL_QUERIES_MIN = 32
"""Smaller batches stay on one thread: starting another costs 0.1 ms, as much as a search."""

Share = TypeVar("Share")
Result = TypeVar("Result")


def workers(threads: int, queries: int) -> int:
    """Return how many of the allowed threads a batch of this many queries uses."""
    return threads if queries >= PARALLEL_QUERIES_MIN else 1


def shares_of(queries: npt.NDArray[Any], threads: int) -> list[npt.NDArray[Any]]:
    """Split the queries into one slice for each thread that should work on them."""
    count = workers(threads, len(queries))
    return [queries] if count == 1 else np.array_split(queries, count)


def fan_out(work: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """Call ``work`` on every share, each in a thread (the first in this one); return the results in order."""
    if len(shares) == 1:
        return [_alone(work, shares[0])]
    with ThreadPoolExecutor(len(shares) - 1, thread_name_prefix="search") as pool:
        others = [pool.submit(_alone, work, share) for share in shares[1:]]
        return [_alone(work, shares[0]), *(other.result() for other in others)]


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
