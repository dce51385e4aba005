"""Errors that nobody looks at are found, in any coroutine, unless the life that would look is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from elanus.core.ids import CollectionID
from elanus.indexcoord.coord import IndexCoord
from elanus.sim.coop_threads import Turns
from elanus.sim.incarnation import Life, current_life, working_for
from elanus.sim.loop import VirtualLoop
from elanus.sim.lost_errors import Tasks
from elanus.sim.plan import ONE_NODE
from elanus.sim.run import Outcome, run
from elanus.sim.scenario import Fault, FaultKind, Scenario

pytestmark = pytest.mark.sim

Plant = Callable[[IndexCoord], Awaitable[None]]
NOBODY = CollectionID(10**9)
CRASH = Fault(6.0, FaultKind.CRASH, "indexcoord")


async def fails(after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise KeyError("planted")


def lost_in(course: Callable[[Life], Awaitable[object]]) -> str:
    """Return the error that is lost in a course of events on a loop of its own; the course gets a life."""

    async def whole() -> str:
        tasks = Tasks()
        loop.made = tasks.made
        kept = await course(Life("role", 1))
        found = tasks.lost()
        del kept
        for task in tasks.unfinished():
            if task is not asyncio.current_task():
                task.cancel()
        return "" if found is None else str(found)

    loop = VirtualLoop()
    loop.set_exception_handler(lambda loop, context: None)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(whole())


def begun(life: Life | None, *works: Awaitable[object]) -> list[asyncio.Future[object]]:
    with working_for(life):
        return [asyncio.ensure_future(work) for work in works]


async def all_of(*works: Awaitable[object]) -> list[object]:
    return await asyncio.gather(*works, return_exceptions=True)


def test_an_error_that_a_life_loses_is_found_whether_it_goes_on_or_ends_later() -> None:
    async def goes_on(life: Life) -> object:
        kept = begun(life, fails())
        await asyncio.sleep(1.0)
        return kept

    async def ends_later(life: Life) -> object:
        kept = begun(life, fails())
        await asyncio.sleep(1.0)
        life.kill()
        await asyncio.sleep(1.0)
        return kept

    for course in (goes_on, ends_later):
        assert "LIVE2: role#1: fails: KeyError: 'planted'" in lost_in(course)


def test_an_error_of_the_clients_or_of_the_simulator_is_found() -> None:
    async def course(life: Life) -> object:
        kept = begun(None, fails())
        await asyncio.sleep(1.0)
        return kept

    assert "LIVE2: fails: KeyError: 'planted'" in lost_in(course)


def test_an_error_that_somebody_looks_at_is_not_lost() -> None:
    async def course(life: Life) -> object:
        (work,) = begun(life, fails())
        await asyncio.wait([work])
        life.kill()
        await asyncio.sleep(1.0)
        return work.exception()

    assert lost_in(course) == ""


def test_errors_after_the_end_of_their_life_do_not_count() -> None:
    async def course(life: Life) -> object:
        kept = begun(life, fails(after_s=2.0))
        await asyncio.sleep(1.0)
        life.kill()
        await asyncio.sleep(2.0)
        return kept

    assert lost_in(course) == ""


def test_an_error_is_not_lost_while_the_tasks_that_it_is_gathered_with_go_on() -> None:
    """In a life that is over, they go on forever."""

    async def killed(life: Life) -> object:
        kept = begun(life, all_of(fails(), asyncio.Event().wait()))
        await asyncio.sleep(1.0)
        life.kill()
        await asyncio.sleep(100.0)
        return kept

    async def goes_on(life: Life) -> object:
        kept = begun(life, all_of(fails(), asyncio.sleep(5.0)))
        await asyncio.sleep(1.0)
        return kept

    for course in (killed, goes_on):
        assert lost_in(course) == ""


def test_a_thread_works_for_the_life_that_began_it() -> None:
    async def course(life: Life) -> object:
        turns, seen = Turns(), []

        def blocking() -> None:
            seen.append(current_life())
            turns.sleep(1.0)
            seen.append(current_life())

        await asyncio.gather(*begun(life, turns.run_thread(blocking)))
        await turns.run_thread(blocking)  # in the same thread
        turns.close()
        assert seen == [life, life, None, None]
        return None

    assert lost_in(course) == ""


def outcome_with(patch: pytest.MonkeyPatch, plant: Plant, *faults: Fault, power_cut: bool = False) -> Outcome:
    """Run the system for a while. ``plant`` is what the first indexcoord does when it has started."""
    start, started = IndexCoord.start, []

    async def and_more(self: IndexCoord) -> None:
        await start(self)
        if not started:
            started.append(self)
            await plant(self)

    patch.setattr(IndexCoord, "start", and_more)
    outcome = run(Scenario(1, 12.0, (), faults, power_cut), ONE_NODE)
    assert started
    return outcome


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_call_whose_error_a_living_role_never_looks_at_is_found(
    power_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant(self: IndexCoord) -> None:
        self.kept = asyncio.ensure_future(self._rootcoord.collection_by_id(NOBODY))  # type: ignore[attr-defined]

    outcome = outcome_with(monkeypatch, plant, power_cut=power_cut)
    assert outcome.broken == "LIVE2"
    assert "indexcoord#" in outcome.message
    assert "Handle.perform: CollectionNotFound" in outcome.message


def test_an_error_that_a_role_was_to_look_at_when_it_died_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def plant(self: IndexCoord) -> None:
        works = (fails(), self._rootcoord.collection_by_id(NOBODY), asyncio.Event().wait())
        self.kept = asyncio.ensure_future(all_of(*works))  # type: ignore[attr-defined]

    outcome = outcome_with(monkeypatch, plant, CRASH)
    assert outcome.broken == "", outcome.message
    assert outcome.faults[FaultKind.CRASH] == 1
