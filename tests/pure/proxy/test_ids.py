"""Ids in batches: one call for all threads that wait, and one failure."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from elanus.core.errors import Unavailable
from elanus.proxy.role.ids import IdBatch

WAITERS = 8


class SlowRoot:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.asked = threading.Event()
        self.answer: Future[int] = Future()

    def reserve(self, count: int) -> int:
        self.calls += 1
        self.asked.set()
        return self.answer.result(20)


class Counted:
    """A lock that counts how often it was released: how many threads have looked at the batch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.released = threading.Semaphore(0)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self.released.release()


def waiting(root: SlowRoot, pool: ThreadPoolExecutor) -> list[Future[int]]:
    """Threads that have all found the batch empty while the call of one of them is under way."""
    ids = IdBatch(root.reserve)
    ids._lock = Counted()  # type: ignore[assignment]
    futures = [pool.submit(ids.take, 3) for _ in range(WAITERS)]
    for _ in range(WAITERS):
        assert ids._lock.released.acquire(timeout=20)  # type: ignore[attr-defined]
    assert root.asked.wait(20)
    return futures


def test_one_call_serves_all_that_wait_for_ids() -> None:
    root = SlowRoot()
    with ThreadPoolExecutor(WAITERS) as pool:
        futures = waiting(root, pool)
        root.answer.set_result(1000)
        taken = sorted(future.result(20) for future in futures)
    assert taken == list(range(1000, 1000 + 3 * WAITERS, 3))
    assert root.calls == 1


def test_a_failed_call_fails_all_that_wait_for_ids_at_once() -> None:
    root = SlowRoot()
    with ThreadPoolExecutor(WAITERS) as pool:
        futures = waiting(root, pool)
        root.answer.set_exception(Unavailable("rootcoord cannot be reached; retry"))
        errors = [future.exception(20) for future in futures]
    assert {str(error) for error in errors} == {"rootcoord cannot be reached; retry"}
    assert {type(error) for error in errors} == {Unavailable}
    assert len({id(error) for error in errors}) == WAITERS, "a raised error belongs to one thread"
    assert root.calls == 1, "nobody waits for a call of its own"


def test_after_a_failure_the_next_thread_asks_again() -> None:
    answers = iter([Unavailable("away"), 50])

    def reserve(count: int) -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ids = IdBatch(reserve)
    with pytest.raises(Unavailable):
        ids.take(2)
    assert (ids.take(2), ids.take(1)) == (50, 52)


def test_many_ids_are_reserved_by_a_call_of_their_own() -> None:
    asked: list[int] = []

    def reserve(count: int) -> int:
        asked.append(count)
        return 7

    assert IdBatch(reserve).take(20_000) == 7
    assert asked == [20_000]
