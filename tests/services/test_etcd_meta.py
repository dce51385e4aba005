"""Metadata in etcd when things go wrong: lost answers, a server that is away, forgotten history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc as stubs

from elanus.core.errors import Unavailable
from elanus.devcluster.etcd import Etcd
from elanus.meta.etcd import EtcdMeta
from elanus.meta.etcd_link import AnswerLost, EtcdLink
from elanus.meta.port import Compare, CompareFailed, OutcomeUnknown, Put, Versioned, WatchBroken
from elanus.meta.session import Session

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def own_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that the tests of this file may kill and pause."""
    service = Etcd(tmp_path_factory.mktemp("own"))
    service.start()
    yield service
    service.stop()


@asynccontextmanager
async def opened(
    service: Etcd, root: Path, timeout_s: float = 5.0, owner: str = "tests", more: tuple[str, ...] = ()
) -> AsyncGenerator[EtcdMeta, None]:
    store = EtcdMeta([*more, service.endpoint], root=f"t/{root.name}", owner=owner, timeout_s=timeout_s)
    try:
        yield store
    finally:
        await store.close()


class LosesAnswers:
    """Every transaction of the link goes through it. ``do`` says what becomes of the next ones."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.do: list[str] = []
        self.held: list[Callable[[], Awaitable[Any]]] = []
        once = EtcdLink.once

        async def losing(link: EtcdLink, call: Any, deadline_s: float) -> Any:
            match self.do.pop(0) if self.do else "":
                case "lose the request":
                    raise AnswerLost("lost on its way there")
                case "hold the request":
                    self.held.append(lambda: once(link, call, link.deadline_s()))
                    raise AnswerLost("still on its way")
                case "lose the answer":
                    await once(link, call, deadline_s)
                    raise AnswerLost("lost on its way back")
                case _:
                    return await once(link, call, deadline_s)

        patch.setattr(EtcdLink, "once", losing)


@pytest.fixture
def loses(monkeypatch: pytest.MonkeyPatch) -> LosesAnswers:
    return LosesAnswers(monkeypatch)


async def count(store: EtcdMeta) -> int:
    found = await store.get("n")
    return int(found.value) if found is not None else 0


async def increment(store: EtcdMeta) -> int:
    """Not to be done twice: the value alone would not show it."""
    value = str(await count(store) + 1).encode()
    return await store.txn([Put("n", value), Put(f"log/{time.monotonic_ns()}", b"")])


def test_a_transaction_whose_answer_was_lost_is_applied_once(
    etcd_server: Etcd, tmp_path: Path, loses: LosesAnswers
) -> None:
    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            await increment(store)
            for course in (
                ["", "lose the answer"],
                ["", "lose the request"],
                ["", "lose the answer", "lose the answer"],  # to the settling as well
                ["", "lose the request", "lose the answer"],
                ["", "lose the answer", "lose the request", "lose the request"],
                ["", "lose the request", "", "lose the answer"],
            ):
                before = await count(store)
                loses.do = course
                revision = await increment(store)
                found = await store.get("n")
                assert found == Versioned(str(before + 1).encode(), revision), course
            assert len(await store.list("log/")) == await count(store)

    asyncio.run(run())


def test_a_request_that_arrives_after_it_was_given_up_changes_nothing(
    etcd_server: Etcd, tmp_path: Path, loses: LosesAnswers
) -> None:
    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            await increment(store)
            loses.do = ["", "hold the request"]
            revision = await increment(store)
            answer = await loses.held[0]()
            assert not answer.succeeded
            assert await store.get("n") == Versioned(b"2", revision)
            assert len(await store.list("log/")) == 2

    asyncio.run(run())


def test_a_comparison_that_failed_is_not_taken_for_a_lost_answer(
    etcd_server: Etcd, tmp_path: Path, loses: LosesAnswers
) -> None:
    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            revision = await increment(store)
            loses.do = ["lose the answer"]
            with pytest.raises(CompareFailed) as failed:
                await store.txn([Put("n", b"9")], [Compare("n", revision - 1), Compare("m", 0)])
            assert failed.value.keys == ("n",)
            assert await count(store) == 1

    asyncio.run(run())


def test_markers_are_few_and_go_with_their_owner(etcd_server: Etcd, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            for _ in range(30):
                await increment(store)
            assert store._markers_made == 1
            await asyncio.gather(*(store.txn([Put(f"k{n}", b"")]) for n in range(10)))
            assert store._markers_made <= 11
            assert not [key for key, _ in await store.list("") if "txn" in key]
            assert len(await markers_of(store)) == store._markers_made
        async with opened(etcd_server, tmp_path) as other:
            assert await markers_of(other) == []

    asyncio.run(run())


async def markers_of(store: EtcdMeta) -> list[Any]:
    root = store._marker_root.encode()
    found = await stubs.KVStub(store._link.channel()).Range(
        rpc.RangeRequest(key=root, range_end=root[:-1] + b"0")
    )
    return list(found.kvs)


def test_markers_go_with_a_process_that_was_killed(
    etcd_server: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elanus.meta.etcd._MARKER_LEASE_S", 2)

    async def run() -> None:
        killed = EtcdMeta([etcd_server.endpoint], root=f"t/{tmp_path.name}", owner="killed")
        await increment(killed)
        await increment(killed)
        assert all(marker.lease for marker in await markers_of(killed))
        async with asyncio.timeout(30):
            while await markers_of(killed):  # noqa: ASYNC110 - the end of a lease wakes nobody here
                await asyncio.sleep(0.2)
        await killed._link.close()

    asyncio.run(run())


def test_markers_are_made_again_in_time_and_do_not_grow_in_number(
    etcd_server: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            await increment(store)
            (first,) = await markers_of(store)
            monkeypatch.setattr(store, "_marker_lease", (first.lease, 0.0))
            store._markers[0].until_s = 0.0
            await increment(store)
            (second,) = await markers_of(store)
            assert second.key == first.key
            assert second.lease != first.lease
            assert await count(store) == 2

    asyncio.run(run())


@pytest.mark.parametrize("course", [["", "lose the answer"], ["", "lose the request"], []])
def test_a_transaction_is_applied_once_at_most_when_its_marker_has_gone(
    etcd_server: Etcd, tmp_path: Path, loses: LosesAnswers, course: list[str]
) -> None:
    """As in a process that was suspended for hours, or when etcd was put back to an earlier state."""

    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            await increment(store)
            (marker,) = await markers_of(store)
            await store.revoke_lease(marker.lease)
            loses.do = [*course]
            with pytest.raises(OutcomeUnknown, match="its marker is gone") if course else nullcontext():
                await increment(store)
            assert await count(store) == len(await store.list("log/")) <= 2
            await increment(store)
            assert await count(store) == len(await store.list("log/"))

    asyncio.run(run())


def test_two_of_one_name_do_not_harm_each_other(etcd_server: Etcd, tmp_path: Path) -> None:
    """A process that was taken for dead, and the one that was started in its place."""

    async def run() -> None:
        async with opened(etcd_server, tmp_path) as one, opened(etcd_server, tmp_path) as other:
            for _ in range(5):
                await increment(one)
                await increment(other)
            assert await count(one) == 10

    asyncio.run(run())


def test_a_server_that_was_killed_is_found_again(own_etcd: Etcd, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(own_etcd, tmp_path) as store:
            await increment(store)
            watch = aiter(store.watch("n", (await store.listing("n")).revision))
            breaking = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            own_etcd.kill()
            with pytest.raises(Unavailable):
                await breaking
            waiting = asyncio.ensure_future(increment(store))
            own_etcd.start()  # in this thread: it ends with the one that started it
            await waiting
            assert await count(store) == 2
            assert len(await store.list("log/")) == 2

    asyncio.run(run())


def test_a_server_that_does_not_answer_is_an_error_in_time(own_etcd: Etcd, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(own_etcd, tmp_path, timeout_s=1.0) as store:
            await increment(store)
            own_etcd.pause()
            try:
                began_s = time.monotonic()
                calls: list[Awaitable[Any]] = [store.get("n"), store.list(""), store.grant_lease(5)]
                for found in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(found, Unavailable)
                    assert own_etcd.endpoint in str(found)
                with pytest.raises(OutcomeUnknown, match="not known"):
                    await store.txn([Put("n", b"5")])
                assert time.monotonic() - began_s < 30
            finally:
                own_etcd.resume()
            assert await count(store) in (1, 5)
            await increment(store)

    asyncio.run(run())


def test_a_session_outlasts_a_short_absence_of_etcd(own_etcd: Etcd, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(own_etcd, tmp_path) as store:
            session = await Session.register(store, "proxy", "a:1", ttl_s=5, monotonic_s=time.monotonic)
            own_etcd.kill()
            own_etcd.start()  # in this thread: it ends with the one that started it
            await session.confirm()
            assert [k for k, _ in await store.list("session/proxy")] == [f"session/proxy-{session.node_id}"]
            await session.close()
            assert list(await store.list("session/proxy")) == []

    asyncio.run(run())


def test_the_next_member_is_asked_when_one_is_away(etcd_server: Etcd, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(etcd_server, tmp_path, more=("127.0.0.1:1",)) as store:
            await increment(store)
            assert await count(store) == 1

    asyncio.run(run())


def test_forgotten_history_breaks_a_watch(own_etcd: Etcd, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(own_etcd, tmp_path) as store:
            first = await increment(store)
            last = [await increment(store) for _ in range(3)][-1]
            kv = stubs.KVStub(store._link.channel())
            await kv.Compact(rpc.CompactionRequest(revision=last))
            with pytest.raises(WatchBroken):
                await anext(aiter(store.watch("", first)))
            assert (await store.listing("")).revision >= last

    asyncio.run(run())


def test_a_long_listing_is_of_one_moment(etcd_server: Etcd, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("elanus.meta.etcd_pages._FIRST_KEYS", 7)
    monkeypatch.setattr("elanus.meta.etcd_pages._KEYS_MAX", 7)

    async def run() -> None:
        async with opened(etcd_server, tmp_path) as store:
            keys = [f"k{n:03d}" for n in range(50)]
            revision = await store.txn([Put(key, b"1") for key in keys])
            repeat, pages = store._link.repeat, []

            async def meanwhile(call: Any) -> Any:
                pages.append(await repeat(call))
                if len(pages) == 2:
                    monkeypatch.setattr(store._link, "repeat", repeat)
                    await store.txn([Put(key, b"2") for key in keys])
                    monkeypatch.setattr(store._link, "repeat", meanwhile)
                return pages[-1]

            monkeypatch.setattr(store._link, "repeat", meanwhile)
            listing = await store.listing("k")
            assert len(pages) == 8
            assert listing.entries == [(key, Versioned(b"1", revision)) for key in keys]

    asyncio.run(run())
