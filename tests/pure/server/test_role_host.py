"""The host of roles: starts in order, restarts one alone, brings back what lost its session."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from elanus.core.errors import InvalidParameter, LeaseLost, NotStarted, Unavailable
from elanus.meta.memory import MemoryMeta
from elanus.meta.session import Session
from elanus.rpc.local import RESTART_WAIT_S, LocalRole, local_client
from elanus.server.roles import RoleHost

TTL_S = 5


class Bench:
    """Roles that say what happens to them. ``failing``: names whose next starts fail, and how often.
    ``stubborn``: the name of one that fails to stop."""

    def __init__(self, *names: str, fails_at_once: bool = False) -> None:
        self.meta = MemoryMeta(lambda: asyncio.get_running_loop().time())
        self.host = RoleHost()
        self.handles = {name: LocalRole(name, fails_at_once=fails_at_once) for name in names}
        self.steps: list[str] = []
        self.failing: dict[str, int] = {}
        self.stubborn = ""
        self.sessions: list[Session] = []
        for name in names:
            self.host.add(self.handles[name], self._join(name), self._build(name))

    def _join(self, name: str) -> Any:
        async def join() -> Session:
            session = await Session.register(
                self.meta,
                name,
                name,
                ttl_s=TTL_S,
                monotonic_s=lambda: asyncio.get_running_loop().time(),
            )
            self.sessions.append(session)
            return session

        return join

    def _build(self, name: str) -> Any:
        return lambda session: Role(self, name, session)

    async def there(self) -> list[str]:
        return [key for key, _ in await self.meta.list("session/") if key != "session/id"]


class Role:
    def __init__(self, bench: Bench, name: str, session: Session) -> None:
        self._bench = bench
        self.name = f"{name} {session.node_id}"
        self._role = name

    async def start(self) -> None:
        if self._bench.failing.get(self._role, 0):
            self._bench.failing[self._role] -= 1
            raise Unavailable("its peers are not there")
        self._bench.steps.append(f"start {self.name}")

    async def stop(self) -> None:
        self._bench.steps.append(f"stop {self.name}, session there: {bool(await self._bench.there())}")
        if self._role == self._bench.stubborn:
            raise Unavailable(f"{self._role} does not stop")

    async def who(self) -> str:
        return self.name

    async def hang(self) -> None:
        await asyncio.Event().wait()


async def test_roles_start_in_order_and_stop_in_the_opposite_one_each_before_its_session() -> None:
    bench = Bench("a", "b")
    await bench.host.start()
    assert await bench.there() == ["session/a-1", "session/b-2"]
    assert [bench.host.node_id(name) for name in bench.host.names()] == [1, 2]
    await bench.host.stop()
    assert bench.steps == [
        "start a 1",
        "start b 2",
        "stop b 2, session there: True",
        "stop a 1, session there: True",
    ]
    assert await bench.there() == []
    assert not bench.host.is_running("a")
    assert bench.host.node_id("a") == 0


async def test_a_role_that_fails_to_stop_does_not_keep_the_others_running() -> None:
    bench = Bench("a", "b", "c")
    await bench.host.start()
    bench.stubborn = "b"
    with pytest.raises(Unavailable, match="b does not stop"):
        await bench.host.stop()
    assert [step for step in bench.steps if step.startswith("stop")] == [
        "stop c 3, session there: True",
        "stop b 2, session there: True",
        "stop a 1, session there: True",
    ]
    assert await bench.there() == []


async def test_a_role_that_lost_its_session_joins_again_under_a_new_id() -> None:
    bench = Bench("a")
    await bench.host.start()
    client: Any = local_client(bench.handles["a"], Role)
    hanging = asyncio.ensure_future(client.hang())
    await asyncio.sleep(1)
    bench.sessions[0].give_up("somebody said so")
    await asyncio.sleep(1)
    assert await client.who() == "a 2"
    assert await bench.there() == ["session/a-2"]
    with pytest.raises(Unavailable, match="went down"):
        await hanging
    await bench.host.stop()


async def test_one_that_cannot_come_back_yet_tries_until_it_can() -> None:
    bench = Bench("a")
    await bench.host.start()
    bench.failing["a"] = 5
    with capture_logs() as logged:
        bench.sessions[0].give_up("somebody said so")
        await asyncio.sleep(0.5)
        assert not bench.host.is_running("a")
        await asyncio.sleep(2)
    said = [entry["error"] for entry in logged if entry["event"].startswith("role not started")]
    assert said == ["its peers are not there"], "once for one cause"
    assert bench.host.is_running("a")
    assert len(await bench.there()) == 1, "attempts that failed left nothing"
    await bench.host.stop()


async def test_a_start_that_fails_fails_and_leaves_no_session() -> None:
    bench = Bench("a")
    bench.failing["a"] = 1
    with pytest.raises(Unavailable):
        await bench.host.start()
    assert await bench.there() == []
    await bench.host.stop()


async def test_what_a_start_that_fails_has_begun_is_stopped_before_its_session_ends() -> None:
    bench = Bench("a")
    bench.failing["a"] = 2
    await bench.host.start_when_possible()
    assert bench.steps == [
        "stop a 1, session there: True",
        "stop a 2, session there: True",
        "start a 3",
    ]
    await bench.host.stop()


async def test_one_that_neither_starts_nor_stops_leaves_no_session_and_says_why_it_did_not_start() -> None:
    bench = Bench("a")
    bench.failing["a"] = 1
    with patch.object(Role, "stop", side_effect=ValueError), pytest.raises(Unavailable, match="its peers"):
        await bench.host.start()
    assert await bench.there() == []
    await bench.host.stop()


async def test_a_process_whose_peers_come_later_starts_when_it_can() -> None:
    bench = Bench("a", "b")
    bench.failing = {"a": 3, "b": 2}
    await bench.host.start_when_possible()
    assert {step.split()[1] for step in bench.steps} == {"a", "b"}
    await bench.host.stop()


async def test_one_that_stands_by_keeps_none_from_starting() -> None:
    bench = Bench("b")

    async def forever() -> Session:
        await asyncio.sleep(1e9)
        raise AssertionError

    bench.host.add(LocalRole("a"), forever, bench._build("a"), stands_by=True)
    starting = asyncio.ensure_future(bench.host.start_when_possible())
    await asyncio.sleep(1)
    assert (bench.host.state("a"), bench.host.state("b")) == ("Standby", "Healthy")
    starting.cancel()
    await bench.host.stop()


async def test_one_is_restarted_alone_and_watched_again() -> None:
    bench = Bench("a", "b")
    await bench.host.start()
    await bench.host.restart("a")
    assert await bench.there() == ["session/a-3", "session/b-2"]
    bench.sessions[-1].give_up("somebody said so")
    await asyncio.sleep(1)
    assert await bench.there() == ["session/a-4", "session/b-2"]
    with pytest.raises(InvalidParameter, match="no role 'c' here: there are a, b"):
        await bench.host.restart("c")
    await bench.host.stop()


async def test_stopping_ends_a_return_that_is_under_way() -> None:
    bench = Bench("a")
    await bench.host.start()
    bench.failing["a"] = 10**6
    bench.sessions[0].give_up("somebody said so")
    await asyncio.sleep(1)
    await bench.host.stop()
    count = len(bench.sessions)
    await asyncio.sleep(5)
    assert len(bench.sessions) == count
    with pytest.raises(LeaseLost):
        await bench.sessions[0].confirm()


async def test_one_that_loses_its_session_while_others_stop_does_not_come_back() -> None:
    bench = Bench("a", "b")
    await bench.host.start()

    async def loses_a(_: Role) -> None:
        bench.sessions[0].give_up("somebody said so")
        await asyncio.sleep(1)

    with patch.object(Role, "stop", loses_a):
        await bench.host.stop()
    await asyncio.sleep(5)
    assert bench.steps == ["start a 1", "start b 2"]
    assert await bench.there() == []


async def test_a_role_that_could_not_be_restarted_comes_back_by_itself() -> None:
    bench = Bench("a")
    await bench.host.start()
    bench.failing["a"] = 2
    with pytest.raises(Unavailable, match="its peers are not there"):
        await bench.host.restart("a")
    assert not bench.host.is_running("a")
    await asyncio.sleep(5)
    assert bench.host.is_running("a")
    await bench.host.stop()
    assert await bench.there() == []


async def test_a_role_that_fails_to_stop_leaves_no_session() -> None:
    bench = Bench("a")
    await bench.host.start()
    with patch.object(Role, "stop", side_effect=Unavailable("no")), pytest.raises(Unavailable):
        await bench.host.restart("a")
    assert await bench.there() == []
    await asyncio.sleep(5)
    assert bench.host.is_running("a")
    await bench.host.stop()


@pytest.mark.parametrize("fails_at_once", [False, True])
async def test_calls_get_why_a_role_does_not_start(fails_at_once: bool) -> None:
    bench = Bench("a", fails_at_once=fails_at_once)
    bench.failing = {"a": 100_000}
    starting = asyncio.ensure_future(bench.host.start_when_possible())
    with pytest.raises(NotStarted, match="a does not start: its peers are not there"):
        await local_client(bench.handles["a"], Role).who()
    waited_s = asyncio.get_running_loop().time()
    assert waited_s == (0 if fails_at_once else RESTART_WAIT_S)
    bench.failing.clear()
    await starting
    assert (await local_client(bench.handles["a"], Role).who()).startswith("a ")
    await bench.host.stop()


async def test_what_a_start_under_way_waits_for_is_why_it_does_not_run_yet() -> None:
    bench = Bench()
    waits = ["rootcoord is not running"]
    begun = asyncio.Event()

    async def join() -> Session:
        await begun.wait()
        raise Unavailable("no lease")

    bench.host.add(LocalRole("a"), join, lambda s: Role(bench, "a", s), waits_for=lambda: "".join(waits))
    starting = asyncio.ensure_future(bench.host.start_when_possible())
    await asyncio.sleep(0)
    assert bench.host.why_not("a") == "rootcoord is not running"
    waits.clear()
    assert bench.host.why_not("a") == ""
    begun.set()
    await asyncio.sleep(0.01)
    assert bench.host.why_not("a") == "no lease", "what has failed comes first"
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await bench.host.stop()
