"""Numbered attempts: who may still commit, and what a file's name says of who wrote it."""

from __future__ import annotations

import asyncio

import pytest
from fakes import settle
from virtual_time import VirtualClock

from elanus.core.attempts import NO_ATTEMPT, OpenAttempts, number_in, stamped
from elanus.core.errors import CommitRefused
from elanus.datacoord.attempts import OWN, Attempts


def test_an_open_attempt_may_commit_until_its_deadline() -> None:
    attempts = OpenAttempts(deadline_s=60)
    attempts.open(7, now_s=100, owner=1)
    attempts.check(7, now_s=160)
    with pytest.raises(CommitRefused, match=r"commit_deadline_s"):
        attempts.check(7, now_s=160.5)


def test_what_is_closed_or_was_never_opened_may_not() -> None:
    attempts = OpenAttempts(deadline_s=60)
    attempts.open(7, now_s=0, owner=1)
    attempts.open(8, now_s=0, owner=1)
    attempts.close(7)
    attempts.close(7)
    for number in (7, 9, NO_ATTEMPT):
        with pytest.raises(CommitRefused):
            attempts.check(number, now_s=0)


def test_those_of_an_owner_that_is_gone_may_not() -> None:
    attempts = OpenAttempts(deadline_s=60)
    for number, owner in ((7, 1), (8, 2), (9, 1)):
        attempts.open(number, now_s=0, owner=owner)
    attempts.close_of(1)
    attempts.check(8, now_s=0)
    assert attempts.oldest(0) == 8
    for number in (7, 9):
        with pytest.raises(CommitRefused):
            attempts.check(number, now_s=0)


def test_the_oldest_is_the_lowest_that_may_still_commit() -> None:
    attempts = OpenAttempts(deadline_s=60)
    assert attempts.oldest(0) is None
    attempts.open(7, now_s=0, owner=1)
    attempts.open(8, now_s=50, owner=1)
    assert attempts.oldest(60) == 7
    assert attempts.oldest(61) == 8, "7 is past its deadline"
    with pytest.raises(CommitRefused):
        attempts.check(7, now_s=61)
    assert attempts.oldest(111) is None


@pytest.mark.parametrize("name", ["a7-12.parquet", stamped(7, "x"), "a7-"])
def test_a_name_carries_its_attempt(name: str) -> None:
    assert number_in(name) == 7


@pytest.mark.parametrize("name", ["7-x", "ab7-x", "a7x", "a-7", "", "xa7-", "a" + "9" * 30 + "-x"])
def test_other_names_carry_none(name: str) -> None:
    assert number_in(name) == NO_ATTEMPT


async def test_a_number_that_is_on_its_way_to_an_attempt_is_not_taken_for_that_of_a_closed_one() -> None:
    """The answers of two calls may arrive in another order: a sweep would take the files of the attempt."""

    class Root:
        def __init__(self) -> None:
            self.last = 100
            self.answers: list[asyncio.Future[None]] = []

        async def alloc_ids(self, count: int) -> int:
            self.last += count
            given = self.last
            self.answers.append(asyncio.get_running_loop().create_future())
            await self.answers[-1]
            return given

    root = Root()
    attempts = Attempts(root, VirtualClock(), deadline_s=60.0)  # type: ignore[arg-type]
    known = asyncio.ensure_future(attempts.open(1, OWN))
    await settle()
    root.answers.pop().set_result(None)
    attempts.close(await known)
    opening = asyncio.ensure_future(attempts.open(1, OWN))
    await settle()
    fresh = 103
    assert attempts.closed_below(fresh) == 102, "not above what is on its way"
    root.answers.pop().set_result(None)
    assert await opening == 102
    assert attempts.closed_below(fresh) == 102
    attempts.close(102)
    assert attempts.closed_below(104) == 104
