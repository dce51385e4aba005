"""Serving processes: what their reads may use, and how the main process makes sure of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from elanus.api.cache_invalidation import Invalidations
from elanus.api.querynode import QueryNodeReads
from elanus.api.serving import EVERY_COLLECTION, ServingFacts, ServingObserved
from elanus.core.access import AccessPolicy, User
from elanus.core.errors import (
    CoordinatorReplaced,
    DeadlineExceeded,
    NotReady,
    Unauthenticated,
    Unavailable,
)
from elanus.core.ids import CollectionID, NodeID
from elanus.core.slow_requests import SlowRequest
from elanus.core.timestamps import Timestamp
from elanus.proxy.access.caller import Caller, FinishedCall
from elanus.proxy.access.passwords import hash_password
from elanus.proxy.access.permission import ObjectType, Permission
from elanus.proxy.fanout.deadline import Patience
from elanus.proxy.read_watch import ReadWatch
from elanus.server.access import port_access
from elanus.server.fronts import check_free
from elanus.server.report import Report
from elanus.server.serving.members import Both, Member, Members, SureGrants
from elanus.server.serving.pool import ServingPool, settings_line
from elanus.server.serving.reads import (
    BEHIND_MAX_S,
    GrantedReads,
    Grants,
    PagesElsewhere,
    PassedWrites,
    reading_settings,
)
from elanus.server.settings import ProxySettings, Settings
from elanus.server.settings_functions import FunctionSettings, ProviderSettings

ONE, TWO = CollectionID(1), CollectionID(2)
SERVED = Timestamp(5)


class FakeReads:
    """A node that serves two collections up to a timestamp."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def service_time(self, collection_id: CollectionID) -> Timestamp:
        return SERVED

    def wait_service_time(self, collection_id: CollectionID, ts: Timestamp, timeout_s: float) -> None:
        self.waits.append(timeout_s)

    def search(self, request: Any) -> str:
        return "hits"


class Request:
    collection_id = ONE


def patience(left_s: float = 60.0) -> Patience:
    return Patience(left_s, lambda: 0.0)


async def test_a_process_reads_its_node_while_it_holds_a_grant() -> None:
    """The last check is that of the read itself: it may have waited while the grant was taken back."""
    node, grants = FakeReads(), Grants()
    reads = GrantedReads(cast(QueryNodeReads, node), grants)
    with pytest.raises(NotReady):
        reads.service_time(ONE, patience())
    await grants.grant(ONE)
    await grants.grant(TWO)
    assert (reads.service_time(ONE, patience()), len(grants)) == (SERVED, 2)
    reads.wait_service_time(ONE, SERVED, patience())
    reads.wait_service_time(ONE, SERVED, patience(0.25))
    assert node.waits == [BEHIND_MAX_S, 0.25], "a read that it cannot serve soon is passed on"
    assert cast(str, reads.search(cast(Any, Request()), patience())) == "hits"
    await grants.withhold(ONE)
    reading: list[Callable[[Any, Patience], object]] = [
        reads.search,
        reads.query,
        reads.count,
        reads.statistics,
    ]
    for read in reading:
        with pytest.raises(NotReady):
            read(Request(), patience())
    assert TWO in grants
    await grants.withhold(EVERY_COLLECTION)
    assert len(grants) == 0


def test_a_read_waits_for_its_client_s_last_write_to_any_collection() -> None:
    """The process does not look at which one the write was for."""
    writes = PassedWrites(5000)
    writes.wrote("ada", Timestamp(100 << 18))
    assert writes.last("ada", ONE) == writes.last("ada", TWO) == 100 << 18
    assert writes.last("bob", ONE) == 0


def test_search_iterators_are_the_main_process_s() -> None:
    with pytest.raises(NotReady):
        PagesElsewhere().page(None, None, {}, None)


def test_a_process_tries_one_wrong_password_of_an_address_and_leaves_the_others_to_the_main_process() -> None:
    """An address would else have the allowance once for each process."""
    ada, bob = (User(name, hash_password(name + name), 1) for name in ("ada", "bob"))
    policy = AccessPolicy(users={"ada": ada, "bob": bob})
    proxy = SimpleNamespace(policies=SimpleNamespace(current=lambda: policy))
    settings = ProxySettings(authorization_enabled=True)
    sign_in = port_access(reading_settings(settings), lambda: cast(Any, proxy)).sign_in
    assert sign_in.user_of("ada", "adaada", "ipv4:10.0.0.1:5") == "ada"
    with pytest.raises(Unauthenticated, match="check failure"):
        sign_in.user_of("bob", "wrong", "ipv4:10.0.0.1:5")
    with pytest.raises(Unauthenticated, match="too many wrong passwords"):
        sign_in.user_of("bob", "bobbob", "ipv4:10.0.0.1:6")
    assert sign_in.user_of("ada", "adaada", "ipv4:10.0.0.1:5") == "ada", "it has signed in before"
    assert sign_in.user_of("bob", "bobbob", "ipv4:10.0.0.2:5") == "bob"
    unlimited = ProxySettings(wrong_passwords_per_minute=0)
    assert reading_settings(unlimited).wrong_passwords_per_minute == 0


# what the main process makes sure of


class FakeProcess:
    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.kills = 0

    async def kill(self) -> None:
        self.kills += 1
        self.ended.set_result(-9)


class FakeGrants:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def grant(self, collection_id: CollectionID) -> None:
        """It is given."""

    async def withhold(self, collection_id: CollectionID) -> None:
        if self.error is not None:
            raise self.error
        await self.answer


async def test_a_grant_is_gone_with_its_answer_or_with_the_process() -> None:
    process, grants = FakeProcess(), FakeGrants()
    asked = asyncio.ensure_future(SureGrants(grants, process).withhold(ONE))
    await asyncio.sleep(1)
    assert not asked.done(), "the process may still read"
    grants.answer.set_result(None)
    await asked
    assert process.kills == 0

    silent = FakeProcess()
    await SureGrants(FakeGrants(DeadlineExceeded("no answer")), silent).withhold(ONE)
    assert silent.kills == 1

    dying = FakeProcess()
    asked = asyncio.ensure_future(SureGrants(FakeGrants(), dying).withhold(ONE))
    await asyncio.sleep(1)
    dying.ended.set_result(1)
    await asked

    kept = FakeProcess()
    with pytest.raises(CoordinatorReplaced):
        await SureGrants(FakeGrants(CoordinatorReplaced("by 9")), kept).withhold(ONE)
    assert kept.kills == 0, "it is the coordinator that may not decide"


class FakeProxy:
    """Its process does not answer before ``answers`` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.forgot = 0

    async def invalidate_access(self) -> None:
        if not self.answers.is_set():
            raise Unavailable("it hangs")
        self.forgot += 1


class FakeMember:
    def __init__(self) -> None:
        self.proxy = FakeProxy()


async def test_a_revoke_waits_for_every_process_or_its_end() -> None:
    members = Members()
    first, second = FakeMember(), FakeMember()
    members.join(NodeID(10), cast(Member, first))
    members.join(NodeID(11), cast(Member, second))
    writers = Members()
    own = FakeMember()
    own.proxy.answers.set()
    writers.join(NodeID(1), cast(Member, own))
    caches = Both(writers.proxies(), members.proxies())
    assert (set(caches), len(caches)) == ({1, 10, 11}, 3)
    invalidations = Invalidations(caches)
    revoke = asyncio.ensure_future(invalidations.confirmed(invalidations.begin_access()))
    first.proxy.answers.set()
    await asyncio.sleep(5)
    assert (own.proxy.forgot, first.proxy.forgot, revoke.done()) == (1, 1, False)
    members.leave(NodeID(11))
    await revoke
    await invalidations.stop()


async def test_listeners_learn_of_both_kinds_of_nodes_until_they_end() -> None:
    writers, members = Members(), Members()
    changes: list[int] = []
    both = Both(writers, members)
    end = both.on_change(lambda: changes.append(len(both)))
    writers.join(NodeID(1), cast(Member, FakeMember()))
    members.join(NodeID(2), cast(Member, FakeMember()))
    await both.refresh()
    end()
    members.leave(NodeID(2))
    assert changes == [1, 2]


# settings and ports


def test_a_process_gets_all_settings_with_the_secrets_through_its_input(tmp_path: Path) -> None:
    """Root's password decides who signs in; a provider's key computes the vectors of searches."""
    openai = ProviderSettings(api_key=SecretStr("sk-1"))
    sent = Settings(
        proxy=ProxySettings(root_password="rootroot", processes=3), function=FunctionSettings(openai=openai)
    )
    line = settings_line(sent, tmp_path)
    assert line.count(b"\n") == 1
    received = Settings.model_validate_json(line)
    assert received.proxy == sent.proxy
    assert received.function.openai.api_key.get_secret_value() == "sk-1"
    assert received.data_dir == tmp_path


def test_one_process_serves_unless_more_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert ProxySettings().processes_wanted == 1
    assert ProxySettings(processes=3).processes_wanted == 3
    assert ProxySettings(processes=0).processes_wanted == 4
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert ProxySettings(processes=0).processes_wanted == 1


def test_a_port_that_another_server_would_share_is_taken() -> None:
    check_free("127.0.0.1", 0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(Unavailable, match="cannot listen"):
            check_free("127.0.0.1", other.getsockname()[1])


# what they observe


class FakeControl:
    """The process, as the pool reaches it. ``fault``: what it answers with."""

    def __init__(self, observed: ServingObserved, fault: Exception | None = None) -> None:
        self._observed = observed
        self._fault = fault

    async def facts(self) -> ServingFacts:
        if self._fault is not None:
            raise self._fault
        return ServingFacts(0, 0, 0, 0, 0.0)

    async def observed(self) -> ServingObserved:
        if self._fault is not None:
            raise self._fault
        return self._observed


def slow_read(at_ms: int, process: int = 1) -> SlowRequest:
    return SlowRequest(at_ms, "Search", "default", "books", 1500.0, 0, "t", "", process)


def pool_of(*controls: FakeControl | None) -> ServingPool:
    """A pool whose processes are these; None: one that does not run."""
    settings = Settings(proxy=ProxySettings(processes=1 + len(controls)))
    pool = ServingPool(settings, cast(Any, None), Members(), "", "", lambda _: None)
    for slot, control in zip(pool._slots, controls, strict=True):
        slot.control = cast(Any, control)
    return pool


async def test_a_process_that_does_not_answer_is_killed_at_once() -> None:
    """Not asked to end first: revokes and drops wait for its end, and their clients for those."""
    process = FakeProcess()
    pool = pool_of(None)
    silent = cast(Any, FakeControl(ServingObserved((), ()), DeadlineExceeded("no answer")))
    await pool._watch(pool._slots[0], process, silent)
    assert process.kills == 1
    ended = FakeProcess()
    ended.ended.set_result(0)
    await pool._watch(pool._slots[0], ended, silent)
    assert ended.kills == 0


async def test_what_the_processes_observe_is_gathered_from_those_that_answer() -> None:
    seen = ServingObserved((slow_read(5, 2),), ())
    silent = FakeControl(seen, Unavailable("it has just ended"))
    assert await pool_of(FakeControl(seen), None, silent).observed() == [seen]


def test_the_slow_log_is_that_of_all_processes_in_the_order_of_time() -> None:
    async def gathered() -> Sequence[SlowRequest]:
        report = Report(cast(Any, None), None, None)
        report.watch = ReadWatch(slow_ms=1, wall_s=lambda: 0.006)
        permission = Permission("PrivilegeSearch", ObjectType.COLLECTION)
        report.watch.end(
            None, FinishedCall("Search", Caller(), permission, "default", ("books",), 0, 1.5, "t")
        )
        report.serving = pool_of(FakeControl(ServingObserved((slow_read(5, 2), slow_read(9, 2)), ())))
        return await asyncio.to_thread(report.slow_requests)

    found = asyncio.run(gathered())
    assert [(one.at_ms, one.process) for one in found] == [(5, 2), (6, 1), (9, 2)]
