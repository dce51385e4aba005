"""Leadership of a serving loop: always one leader, whatever its handlers do."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from elanus.rpc.serving.leading import Leadership

LIMIT_S = 60.0
"""For a broken system only: no test waits for time to pass."""
Work = Callable[["Loop", int], None]


class Loop:
    """Leaders take work from a queue. ``patience_s``: after which a handler is overtaken."""

    def __init__(self, patience_s: float) -> None:
        self.works: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self.lost: list[str] = []
        self.waiting = self.most_waiting = 0
        """Threads that wait for work."""
        self.ended = threading.Event()
        self.leadership = Leadership(self._lead, "test loop", patience_s)
        self.leadership.start()

    def _lead(self, term: int) -> None:
        while self.leadership.term == term:
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            work = self.works.get()
            self.waiting -= 1
            if work is None:
                self.leadership.finish()
                self.ended.set()
                break
            work(self, term)

    def handle(self, name: str, handler: Callable[[int], None]) -> None:
        """Run ``handler(term)`` in the leader."""

        def work(loop: Loop, term: int) -> None:
            loop.leadership.begin(lambda: loop.lost.append(name))
            handler(term)
            loop.leadership.end(term)

        self.works.put(work)


@pytest.fixture(params=[0.001, LIMIT_S], ids=["impatient", "patient"])
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = Loop(request.param)
    yield made
    made.works.put(None)
    wait(made.ended)


def wait(event: threading.Event) -> None:
    assert event.wait(LIMIT_S)


@pytest.mark.parametrize("loop", [LIMIT_S], indirect=True)
def test_handlers_run_one_after_the_other_in_one_thread(loop: Loop) -> None:
    threads: list[int] = []
    done = threading.Event()
    for name in "abc":
        loop.handle(name, lambda _: threads.append(threading.get_ident()))
    loop.handle("d", lambda _: done.set())
    wait(done)
    assert len(set(threads)) == 1
    assert loop.lost == []


def test_a_leader_that_is_about_to_wait_is_replaced_at_once(loop: Loop) -> None:
    gate, done = threading.Event(), threading.Event()

    def waits(term: int) -> None:
        loop.leadership.pass_on(term)
        loop.leadership.pass_on(term)  # once is enough
        wait(gate)
        done.set()

    loop.handle("waits", waits)
    loop.handle("opens", lambda _: gate.set())
    wait(done)
    assert loop.lost.count("waits") == 1


@pytest.mark.parametrize("loop", [0.001], indirect=True)
def test_a_handler_that_says_nothing_is_overtaken(loop: Loop) -> None:
    gate, done = threading.Event(), threading.Event()

    def hogs(_: int) -> None:
        wait(gate)
        done.set()

    loop.handle("hogs", hogs)
    loop.handle("opens", lambda _: gate.set())
    wait(done)
    assert "hogs" in loop.lost


@pytest.mark.parametrize("loop", [0.001], indirect=True)
def test_many_handlers_in_a_row_can_block(loop: Loop) -> None:
    gates = [threading.Event() for _ in range(12)]
    done = threading.Semaphore(0)

    def blocks(number: int) -> Callable[[int], None]:
        def handler(term: int) -> None:
            if number % 2:
                loop.leadership.pass_on(term)
            wait(gates[number])
            done.release()

        return handler

    for number in range(len(gates)):
        loop.handle(str(number), blocks(number))
    opened = threading.Event()
    loop.handle("last", lambda _: opened.set())
    wait(opened)
    assert loop.leadership.displaced >= len(gates)
    for gate in gates:
        gate.set()
    for _ in gates:
        assert done.acquire(timeout=LIMIT_S)


@pytest.mark.parametrize("loop", [0.001], indirect=True)
def test_a_watcher_that_has_gone_to_sleep_wakes_for_a_handler(loop: Loop) -> None:
    asleep = threading.Event()
    while not loop.leadership._is_asleep:
        asleep.wait(0.001)
    gate, done = threading.Event(), threading.Event()

    def hogs(_: int) -> None:
        wait(gate)
        done.set()

    loop.handle("hogs", hogs)
    loop.handle("opens", lambda _: gate.set())
    wait(done)


def test_never_two_lead(loop: Loop) -> None:
    done = threading.Semaphore(0)

    def short(_: int) -> None:
        done.release()

    def gives_up(term: int) -> None:
        loop.leadership.pass_on(term)
        done.release()

    for number in range(300):
        loop.handle("any", gives_up if number % 3 else short)
    for _ in range(300):
        assert done.acquire(timeout=LIMIT_S)
    assert loop.most_waiting == 1
