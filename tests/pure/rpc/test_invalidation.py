"""No proxy works with an old definition when its change has returned, whatever happens to the calls."""

from __future__ import annotations

import asyncio

import pytest
from fakes import CID, FakeProxy, settle

from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID
from elanus.rpc.invalidation import Invalidations

ONE, TWO = NodeID(1), NodeID(2)


class Proxies(dict[NodeID, FakeProxy]):
    def __init__(self) -> None:
        super().__init__({ONE: FakeProxy(), TWO: FakeProxy()})

    def break_down(self, node_id: NodeID) -> None:
        self[node_id].calls.failing["invalidate_collection"] = Unavailable("the call was lost")

    def mend(self, node_id: NodeID) -> None:
        del self[node_id].calls.failing["invalidate_collection"]

    def told(self, node_id: NodeID) -> list[object]:
        return self[node_id].calls.of("invalidate_collection")


async def tell(invalidations: Invalidations) -> None:
    await invalidations.heard(invalidations.begin(CID))


async def test_every_proxy_is_told() -> None:
    proxies = Proxies()
    await tell(Invalidations(proxies))
    assert [proxies.told(n) for n in (ONE, TWO)] == [[CID], [CID]]
    await tell(Invalidations({}))


async def test_a_lost_call_is_repeated_before_the_change_returns() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    telling = asyncio.ensure_future(tell(Invalidations(proxies)))
    await asyncio.sleep(3.0)
    assert not telling.done()
    proxies.mend(TWO)
    await telling
    assert proxies.told(TWO)[-1] == CID


async def test_a_proxy_that_is_gone_needs_to_hear_nothing() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    telling = asyncio.ensure_future(tell(Invalidations(proxies)))
    await asyncio.sleep(1.0)
    del proxies[TWO]
    await telling


async def test_one_that_stays_silent_is_an_error_and_is_told_all_the_same() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    with pytest.raises(Unavailable, match=r"the change is made, but proxies \[2\] have not answered"):
        await tell(invalidations)
    tried = len(proxies.told(TWO))
    proxies.mend(TWO)
    await asyncio.sleep(2.0)
    assert len(proxies.told(TWO)) == tried + 1
    await invalidations.stop()


async def test_whoever_is_new_has_everything_forgotten_and_waits_for_nobody() -> None:
    proxies = Proxies()
    invalidations = Invalidations(proxies)
    invalidations.tell_everything()
    await settle()
    assert all(len(p.calls.of("invalidate_everything")) == 1 for p in proxies.values())
    await invalidations.stop()


async def test_when_its_owner_stops_nobody_is_told_any_more() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    with pytest.raises(Unavailable):
        await tell(invalidations)
    await invalidations.stop()
    tried = len(proxies.told(TWO))
    await asyncio.sleep(5.0)
    assert len(proxies.told(TWO)) == tried


async def test_a_defect_of_a_proxy_is_not_taken_for_an_answer() -> None:
    proxies = Proxies()
    proxies[TWO].calls.failing["invalidate_collection"] = KeyError("a defect")
    with pytest.raises(KeyError):
        await tell(Invalidations(proxies))


async def test_one_that_gives_up_waiting_leaves_the_telling_to_go_on_for_the_next() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    await invalidations.all_heard()  # of nothing
    telling = asyncio.ensure_future(tell(invalidations))
    await settle()
    telling.cancel()
    waiting = asyncio.ensure_future(invalidations.all_heard())
    await asyncio.sleep(3.0)
    assert not waiting.done()
    proxies.mend(TWO)
    await waiting
    proxies.break_down(ONE)
    invalidations.begin(CID)
    with pytest.raises(Unavailable, match=r"of an earlier change: .* proxies \[1\]"):
        await invalidations.all_heard()
    await invalidations.stop()


async def test_what_is_made_after_its_owner_stopped_the_successor_tells() -> None:
    proxies = Proxies()
    invalidations = Invalidations(proxies)
    await invalidations.stop()
    await tell(invalidations)
    assert not proxies.told(ONE)
