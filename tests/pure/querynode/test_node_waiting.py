"""Reads wake when their time is served, or learn why it never will be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from elanus.core.errors import CollectionNotLoaded, DeadlineExceeded, ElanusError
from elanus.core.timestamps import Timestamp
from elanus.expr.identity_cache import IdentityCache
from elanus.querynode.service_clock import ServiceClock


def in_thread(work: Callable[[], None]) -> tuple[threading.Thread, list[ElanusError]]:
    errors: list[ElanusError] = []

    def run() -> None:
        try:
            work()
        except ElanusError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def wait_until_waiting(clock: ServiceClock, count: int) -> None:
    while len(clock._waiting) < count:
        pass


class Line:
    """The time of a clock, with those who watch it."""

    def __init__(self) -> None:
        self.ts = Timestamp(0)
        self.watchers: list[Callable[[], bool]] = []
        self.watched = 0
        self.clock = ServiceClock(lambda: self.ts, self.watch)

    def watch(self, watcher: Callable[[], bool]) -> None:
        self.watched += 1
        self.watchers.append(watcher)

    def advance(self, ts: int) -> None:
        self.ts = Timestamp(ts)
        self.watchers = [watcher for watcher in self.watchers if watcher()]


def test_only_those_whose_time_has_come_wake() -> None:
    line = Line()
    clock = line.clock
    early, early_errors = in_thread(lambda: clock.wait(Timestamp(5), 60))
    late, late_errors = in_thread(lambda: clock.wait(Timestamp(9), 60))
    wait_until_waiting(clock, 2)
    line.advance(7)
    early.join(60)
    assert late.is_alive()
    assert line.watchers
    line.advance(9)
    late.join(60)
    assert not line.watchers, "a clock on which nobody waits watches nothing"
    assert not early_errors
    assert not late_errors


def test_a_time_served_already_is_not_waited_for() -> None:
    line = Line()
    line.advance(5)
    line.clock.wait(Timestamp(5), 0)
    assert line.watched == 0


def test_a_time_that_is_reached_while_it_is_being_watched_is_not_waited_for() -> None:
    line = Line()
    clock = ServiceClock(lambda: line.ts, lambda watcher: line.advance(5))
    clock.wait(Timestamp(5), 0)
    assert not clock._waiting


def test_one_who_waits_is_woken_by_the_lines_that_count_since() -> None:
    line = Line()
    waiting, errors = in_thread(lambda: line.clock.wait(Timestamp(5), 60))
    wait_until_waiting(line.clock, 1)
    line.watchers.clear()  # the vchannel is served by another follower now
    line.clock.rewatch()
    line.advance(5)
    waiting.join(60)
    assert not waiting.is_alive()
    assert not errors


def test_the_deadline_names_both_times() -> None:
    line = Line()
    clock = line.clock
    line.advance(5)
    with pytest.raises(DeadlineExceeded, match=r"timestamp 6 .* up to 5 "):
        clock.wait(Timestamp(6), 0)
    assert not clock._waiting


def test_closing_wakes_everybody_with_the_error() -> None:
    clock = Line().clock
    waiting, errors = in_thread(lambda: clock.wait(Timestamp(5), 60))
    wait_until_waiting(clock, 1)
    clock.close(CollectionNotLoaded("released"))
    waiting.join(60)
    assert [str(error) for error in errors] == ["released"]
    with pytest.raises(CollectionNotLoaded):
        clock.wait(Timestamp(0), 0)


async def test_a_coroutine_that_gives_up_waits_no_longer() -> None:
    """A read may ask for a time that is years away; it is given up when the version changes, or the node."""
    line = Line()
    waiting = asyncio.ensure_future(line.clock.reached(Timestamp(1 << 62), 60))
    await asyncio.sleep(0)
    assert line.watchers
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    line.advance(5)
    assert not line.watchers, "a clock on which nobody waits watches nothing"


def test_cache_finds_by_identity_and_drops_what_was_not_found_again() -> None:
    cache: IdentityCache[list[int], str] = IdentityCache(2)
    first, second, third, fourth = [1], [1], [1], [1]
    cache.put(first, "first")
    cache.put(second, "second")
    assert cache.get(first) == "first"
    cache.put(third, "third")
    assert (cache.get(first), cache.get(second), cache.get(third)) == ("first", None, "third")
    cache.put(fourth, "fourth")
    assert len(cache) == 2
    cache.put(fourth, "again")
    assert cache.get(fourth) == "again"
