"""The time left of a call bounds the calls made to answer it, and nothing else."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from elanus.core.errors import DeadlineExceeded
from elanus.rpc import deadlines
from elanus.rpc.carrier import RpcChannel, RpcServer
from elanus.rpc.local import LocalRole, local_client


class AskApi(Protocol):
    async def ask(self) -> float: ...


class Asked:
    def __init__(self, work: Callable[[], Awaitable[float]]) -> None:
        self.ask = work


@asynccontextmanager
async def served(work: Callable[[], Awaitable[float]]) -> AsyncIterator[RpcChannel]:
    with tempfile.TemporaryDirectory(prefix="rpc") as directory:
        server = RpcServer(f"unix:{directory}/s", [(AskApi, Asked(work))])
        await server.start()
        channel = RpcChannel(f"unix:{directory}/s")
        try:
            yield channel
        finally:
            await channel.close()
            await server.stop(0)


async def what_is_left() -> float:
    """The time that a call made here with ten minutes may take; 0 for one without a limit."""
    return deadlines.within(600.0) or 0.0


# gRPC rounds a timeout up on its way, by less than a hundredth: thirty seconds may arrive as a little more.


def answer(work: Callable[[], Awaitable[float]], timeout_s: float | None) -> float:
    async def run() -> float:
        async with served(work) as channel:
            return await channel.client(AskApi, timeout_s).ask()

    return asyncio.run(run())


def test_a_call_answered_within_thirty_seconds_leaves_less_to_those_it_makes() -> None:
    assert 15 < answer(what_is_left, 30.0) < 31


def test_a_call_without_a_limit_bounds_nothing() -> None:
    assert answer(what_is_left, None) == 600


def test_a_call_without_a_limit_of_its_own_gets_that_of_its_caller() -> None:
    async def unlimited() -> float:
        left_s = deadlines.within(None)
        return -1.0 if left_s is None else left_s

    assert 15 < answer(unlimited, 30.0) < 31
    assert answer(unlimited, None) == -1


def test_a_role_of_the_same_process_is_bounded_as_well() -> None:
    async def through_a_role() -> float:
        role = LocalRole("next")
        role.up(Asked(what_is_left))
        return await local_client(role, AskApi).ask()

    assert 15 < answer(through_a_role, 30.0) < 31


def test_work_that_a_call_leaves_behind_is_not_bounded() -> None:
    async def from_a_task() -> float:
        return await asyncio.create_task(what_is_left())

    assert answer(from_a_task, 30.0) == 600


def test_the_next_peer_is_not_waited_for_longer_than_the_caller_waits() -> None:
    """The call in the middle has ten minutes of its own, and its caller a moment."""

    async def run() -> None:
        asked, ended = asyncio.Event(), asyncio.Event()

        async def ask_forever() -> float:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return 0.0

        async with served(ask_forever) as last:

            async def ask_the_last() -> float:
                return await last.client(AskApi, 600.0).ask()

            async with served(ask_the_last) as middle:
                patience_s = 0.2
                while not asked.is_set():  # on a busy machine a call may end before it has reached the last
                    with pytest.raises(DeadlineExceeded):
                        await middle.client(AskApi, patience_s).ask()
                    patience_s *= 2
                async with asyncio.timeout(60):
                    await ended.wait()

    asyncio.run(run())


def test_outside_of_any_call_there_is_no_bound() -> None:
    assert asyncio.run(what_is_left()) == 600
