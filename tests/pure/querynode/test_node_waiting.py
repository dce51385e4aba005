"""Reads wake when their time is served, or learn why it never will be."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from elanus.core.errors import CollectionNotLoaded, DeadlineExceeded, ElanusError
from elanus.core.timestamps import Timestamp
from elanus.querynode.cache import IdentityCache
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


def test_only_those_whose_time_has_come_wake() -> None:
    clock = ServiceClock()
    early, early_errors = in_thread(lambda: clock.wait(Timestamp(5), 60))
    late, late_errors = in_thread(lambda: clock.wait(Timestamp(9), 60))
    wait_until_waiting(clock, 2)
    clock.advance(Timestamp(7))
    early.join(60)
    assert late.is_alive()
    clock.advance(Timestamp(9))
    late.join(60)
    assert not early_errors
    assert not late_errors


def test_a_time_served_already_is_not_waited_for() -> None:
    clock = ServiceClock()
    clock.advance(Timestamp(5))
    clock.wait(Timestamp(5), 0)


def test_the_deadline_names_both_times() -> None:
    clock = ServiceClock()
    clock.advance(Timestamp(5))
    with pytest.raises(DeadlineExceeded, match=r"timestamp 6 .* up to 5 "):
        clock.wait(Timestamp(6), 0)
    assert not clock._waiting


def test_closing_wakes_everybody_with_the_error() -> None:
    clock = ServiceClock()
    waiting, errors = in_thread(lambda: clock.wait(Timestamp(5), 60))
    wait_until_waiting(clock, 1)
    clock.close(CollectionNotLoaded("released"))
    waiting.join(60)
    assert [str(error) for error in errors] == ["released"]
    with pytest.raises(CollectionNotLoaded):
        clock.wait(Timestamp(0), 0)


def test_time_never_goes_back() -> None:
    clock = ServiceClock()
    clock.advance(Timestamp(5))
    with pytest.raises(AssertionError):
        clock.advance(Timestamp(4))


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
