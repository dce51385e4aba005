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


async def test_every_proxy_is_told() -> None:
    proxies = Proxies()
    await Invalidations(proxies).tell(CID)
    assert [proxies.told(n) for n in (ONE, TWO)] == [[CID], [CID]]
    await Invalidations({}).tell(CID)


async def test_a_lost_call_is_repeated_before_the_change_returns() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    telling = asyncio.ensure_future(Invalidations(proxies).tell(CID))
    await asyncio.sleep(3.0)
    assert not telling.done()
    proxies.mend(TWO)
    await telling
    assert proxies.told(TWO)[-1] == CID


async def test_a_proxy_that_is_gone_needs_to_hear_nothing() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    telling = asyncio.ensure_future(Invalidations(proxies).tell(CID))
    await asyncio.sleep(1.0)
    del proxies[TWO]
    await telling


async def test_one_that_stays_silent_is_an_error_and_is_told_all_the_same() -> None:
    proxies = Proxies()
    proxies.break_down(TWO)
    invalidations = Invalidations(proxies)
    with pytest.raises(Unavailable, match=r"the change is made, but proxies \[2\] have not answered"):
        await invalidations.tell(CID)
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
        await invalidations.tell(CID)
    await invalidations.stop()
    tried = len(proxies.told(TWO))
    await asyncio.sleep(5.0)
    assert len(proxies.told(TWO)) == tried


async def test_a_defect_of_a_proxy_is_not_taken_for_an_answer() -> None:
    proxies = Proxies()
    proxies[TWO].calls.failing["invalidate_collection"] = KeyError("a defect")
    with pytest.raises(KeyError):
        await Invalidations(proxies).tell(CID)
