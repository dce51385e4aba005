"""No proxy works with an old definition when its change has returned, whatever happens to the calls."""

from __future__ import annotations

import asyncio

import pytest
from fakes import CID, FakeProxy, settle

from elanus.api.cache_invalidation import Invalidations
from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID

ONE, TWO = NodeID(1), NodeID(2)


class Proxies(dict[NodeID, FakeProxy]):
    def __init__(self) -> None:
        super().__init__({ONE: FakeProxy(), TWO: FakeProxy()})

    def break_down(self, node_id: NodeID) -> None:
        self[node_id].calls.failing["invalidate_collection"] = Unavailable("the call was lost")

    def repair(self, node_id: NodeID) -> None:
        del self[node_id].calls.failing["invalidate_collection"]

    def received(self, node_id: NodeID) -> list[object]:
        return self[node_id].calls.of("invalidate_collection")


async def announce(invalidations: Invalidations) -> None:
    await invalidations.confirmed(invalidations.begin(CID))


async def test_every_proxy_is_notified() -> None:
    proxies = Proxies()
    await announce(Invalidations(proxies))
    assert [proxies.received(n) for n in (ONE, TWO)] == [[CID], [CID]]
    await announce(Invalidations({}))


async def test_a_lost_call_is_repeated_before_the_change_returns() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    announcing = asyncio.ensure_future(announce(Invalidations(proxies)))
    await asyncio.sleep(3.0)
    assert not announcing.done()
    proxies.repair(TWO)
    await announcing
    assert proxies.received(TWO)[-1] == CID


async def test_a_proxy_that_is_gone_needs_no_notification() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    announcing = asyncio.ensure_future(announce(Invalidations(proxies)))
    await asyncio.sleep(1.0)
    del proxies[TWO]
    await announcing


async def test_a_silent_proxy_is_an_error_and_is_notified_all_the_same() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    with pytest.raises(Unavailable, match=r"the change is made, but proxies \[2\] have not answered"):
        await announce(invalidations)
    tried = len(proxies.received(TWO))
    proxies.repair(TWO)
    await asyncio.sleep(2.0)
    assert len(proxies.received(TWO)) == tried + 1
    await invalidations.stop()


async def test_a_new_owner_makes_the_proxies_forget_everything_and_waits_for_none() -> None:
    proxies = Proxies()
    invalidations = Invalidations(proxies)
    invalidations.invalidate_everything()
    await settle()
    assert all(len(p.calls.of("invalidate_everything")) == 1 for p in proxies.values())
    await invalidations.stop()


async def test_when_its_owner_stops_no_proxy_is_notified_any_more() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    with pytest.raises(Unavailable):
        await announce(invalidations)
    await invalidations.stop()
    tried = len(proxies.received(TWO))
    await asyncio.sleep(5.0)
    assert len(proxies.received(TWO)) == tried


async def test_a_defect_of_a_proxy_is_not_taken_for_an_answer() -> None:
    proxies = Proxies()
    proxies[TWO].calls.failing["invalidate_collection"] = KeyError("a defect")
    with pytest.raises(KeyError):
        await announce(Invalidations(proxies))


async def test_notifications_go_on_when_their_caller_gives_up_waiting() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    await invalidations.all_confirmed()  # of nothing
    announcing = asyncio.ensure_future(announce(invalidations))
    await settle()
    announcing.cancel()
    waiting = asyncio.ensure_future(invalidations.all_confirmed())
    await asyncio.sleep(3.0)
    assert not waiting.done()
    proxies.repair(TWO)
    await waiting
    proxies.break_down(ONE)
    invalidations.begin(CID)
    with pytest.raises(Unavailable, match=r"of an earlier change: .* proxies \[1\]"):
        await invalidations.all_confirmed()
    await invalidations.stop()


async def test_a_change_made_after_its_owner_stopped_is_announced_by_the_successor() -> None:
    proxies = Proxies()
    invalidations = Invalidations(proxies)
    await invalidations.stop()
    await announce(invalidations)
    assert not proxies.received(ONE)
