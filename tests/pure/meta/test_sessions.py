"""Sessions: an id of its own, a key while it lives, and no belief beyond its lease."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from session_bench import TTL_S, Bench, now_s

from elanus.core.errors import DiskFull, Internal, LeaseLost, Unavailable
from elanus.meta.port import CompareFailed, LeaseID, MetaFailed
from elanus.meta.session import Session, SessionInfo


async def test_a_session_shows_its_node_under_its_role_with_an_id_never_given_before() -> None:
    bench = Bench()
    one, other = await bench.register(), await bench.register(address="there:2")
    await other.close()
    third = await bench.register("querynode")
    assert [one.node_id, other.node_id, third.node_id] == [1, 2, 3]
    assert await bench.keys() == ["session/proxy-1", "session/querynode-3"]
    found = await bench.store.get("session/proxy-1")
    assert found is not None
    assert msgspec.json.decode(found.value, type=SessionInfo) == SessionInfo(one.node_id, "proxy", "here:1")
    await one.close()
    await third.close()
    assert await bench.keys() == []


async def test_many_register_at_once_and_all_get_ids_of_their_own() -> None:
    bench = Bench()
    sessions = await asyncio.gather(*(bench.register() for _ in range(20)))
    assert {s.node_id for s in sessions} == set(range(1, 21))
    for session in sessions:
        await session.close()


async def test_a_lease_that_is_over_before_the_session_has_begun_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    granted: list[LeaseID] = []
    grant = bench.store.grant_lease

    async def stands_still_once(ttl_s: int) -> LeaseID:
        granted.append(await grant(ttl_s))
        if len(granted) == 1:
            await asyncio.sleep(2 * TTL_S)
        return granted[-1]

    monkeypatch.setattr(bench.store, "grant_lease", stands_still_once)
    session = await bench.register()
    assert len(granted) == 2
    assert session.is_valid()
    await asyncio.sleep(3 * TTL_S)
    await session.confirm()
    assert await bench.keys() == ["session/proxy-1"], "the lease that is renewed is the one it stands under"
    await session.close()


@pytest.mark.parametrize("failure", [DiskFull("no room"), MetaFailed("disk I/O error"), Unavailable("gone")])
async def test_it_closes_when_the_store_cannot_write_and_its_lease_expires(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    bench = Bench()
    session = await bench.register()

    async def fails(_: LeaseID) -> None:
        raise failure

    monkeypatch.setattr(bench.store, "revoke_lease", fails)
    await session.close()
    assert await bench.keys() == ["session/proxy-1"]
    await asyncio.sleep(3 * TTL_S)
    assert await bench.keys() == []


async def test_it_lives_as_long_as_it_is_renewed() -> None:
    bench = Bench()
    session = await bench.register()
    for _ in range(50):
        await asyncio.sleep(TTL_S / 2)
        assert session.is_valid()
        await session.confirm()
    assert await bench.keys() == ["session/proxy-1"]
    await session.close()


async def test_cut_off_it_stops_believing_before_the_store_lets_go() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    await asyncio.sleep(1)
    cable.pull()
    async with asyncio.timeout(10 * TTL_S):
        while session.is_valid():
            assert await bench.keys() == ["session/proxy-1"]
            await asyncio.sleep(0.05)
    with pytest.raises(LeaseLost, match="cannot be confirmed"):
        await session.confirm()
    assert not session.lost.is_set(), "it does not know yet"
    await asyncio.sleep(2 * TTL_S)
    assert await bench.keys() == []
    cable.plug()
    await asyncio.wait_for(session.lost.wait(), 1)
    with pytest.raises(LeaseLost, match="is over"):
        await session.confirm()
    await session.close()


async def test_a_short_cut_heals_by_itself() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    cable.pull()
    await asyncio.sleep(TTL_S * 0.9)
    cable.plug()
    await asyncio.sleep(1)
    assert session.is_valid()
    assert not session.lost.is_set()
    await session.close()


async def test_renewals_that_the_store_refuses_for_a_while_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    session = await bench.register()
    renew, refused = bench.store.renew_lease, 0

    async def refuse_once(lease: LeaseID) -> int:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise Internal("etcd refused a request: INVALID_ARGUMENT revision of auth store is old")
        return await renew(lease)

    monkeypatch.setattr(bench.store, "renew_lease", refuse_once)
    await asyncio.sleep(3 * TTL_S)
    assert refused > 1
    assert session.is_valid()
    assert await bench.keys() == ["session/proxy-1"]
    await session.close()


async def test_a_refused_renewal_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    session = await bench.register()
    bench.stand_still(TTL_S)

    async def refuse(_: LeaseID) -> int:
        raise Internal("etcd refused a request: PERMISSION_DENIED")

    monkeypatch.setattr(bench.store, "renew_lease", refuse)
    with pytest.raises(LeaseLost, match="PERMISSION_DENIED"):
        await session.confirm()
    await session.close()


async def test_renewals_whose_answers_are_lost_prove_nothing_to_the_holder() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    cable.answers_lost = True
    await asyncio.sleep(3 * TTL_S)
    assert not session.is_valid()
    assert await bench.keys() == ["session/proxy-1"], "the store has received them"
    cable.answers_lost = False
    await session.confirm()
    assert session.is_valid(), "it has never ended"
    await session.close()


async def test_after_a_standstill_the_first_question_settles_it() -> None:
    """The loop stood still for a minute: nothing was lost, and a caller that asks at once is not refused."""
    bench = Bench()
    session = await bench.register()
    bench.stand_still(60)
    assert not session.is_valid()
    await asyncio.gather(*(session.confirm() for _ in range(10)))
    assert session.is_valid()
    assert await bench.keys() == ["session/proxy-1"]
    await session.close()


async def test_who_asks_at_the_same_time_shares_a_renewal() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    bench.stand_still(60)
    await asyncio.gather(*(session.confirm() for _ in range(10)))
    assert cable.calls.count("renew_lease") <= 2
    await session.close()


async def test_a_renewal_that_took_too_long_is_followed_by_another() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    renew = bench.store.renew_lease
    slow = iter([3 * TTL_S, 0])

    async def renew_slowly(lease: int) -> int:
        left_s = await renew(lease)  # type: ignore[arg-type]
        await asyncio.sleep(next(slow, 0))
        return left_s

    bench.store.renew_lease = renew_slowly  # type: ignore[method-assign, assignment]
    keeping = asyncio.ensure_future(_kept_alive(bench, session))
    await asyncio.sleep(2 * TTL_S)  # the session's own renewal is under way, sent long ago
    began_s = now_s()
    await session.confirm()
    assert session.is_valid()
    assert now_s() > began_s
    keeping.cancel()
    await session.close()


async def _kept_alive(bench: Bench, session: Session) -> None:
    """The store receives renewals from elsewhere: the lease does not end meanwhile."""
    while True:
        bench.store._leases.renew(session._lease)
        await asyncio.sleep(0.5)


async def test_a_session_that_somebody_ended_is_lost() -> None:
    bench = Bench()
    session = await bench.register()
    await bench.store.revoke_lease(session._lease)
    await asyncio.wait_for(session.lost.wait(), TTL_S)
    assert not session.is_valid()
    await session.close()


async def test_there_is_one_exclusive_session() -> None:
    bench = Bench()
    one = await Session.register(
        bench.store, "rootcoord", "a", ttl_s=TTL_S, monotonic_s=now_s, exclusive=True
    )
    with pytest.raises(CompareFailed):
        await Session.register(bench.store, "rootcoord", "b", ttl_s=TTL_S, monotonic_s=now_s, exclusive=True)
    assert await bench.keys() == ["session/rootcoord"]
    await one.close()


async def test_a_registration_that_failed_leaves_nothing() -> None:
    bench = Bench()
    cable = bench.cable()
    cable.answers_lost = True
    with pytest.raises(Unavailable):
        await bench.register(meta=cable)
    assert await bench.keys() == []


async def test_closing_without_the_store_leaves_the_key_to_its_end() -> None:
    bench = Bench()
    cable = bench.cable()
    session = await bench.register(meta=cable)
    cable.pull()
    await session.close()
    assert await bench.keys() == ["session/proxy-1"]
    await asyncio.sleep(TTL_S + 1)
    assert await bench.keys() == []
