"""The other processes of a cluster as a process knows them, by their sessions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from elanus.core.errors import Unavailable
from elanus.core.ids import NodeID
from elanus.meta.memory import MemoryMeta
from elanus.meta.session import Session
from elanus.server.cluster.leaving import hand_over
from elanus.server.cluster.peers import COORDINATORS, ClusterPeers
from elanus.server.status import RoleStatus

OWN = "own:1"


def dial(_address: str) -> Any:
    async def close() -> None:
        pass

    return SimpleNamespace(close=close)


async def test_coordinators_that_no_process_is_active_in_are_named() -> None:
    now_s = asyncio.get_running_loop().time
    meta = MemoryMeta(now_s)

    async def join(role: str, address: str) -> Session:
        exclusive = role in COORDINATORS
        return await Session.register(meta, role, address, ttl_s=60, monotonic_s=now_s, exclusive=exclusive)

    sessions = [
        await join(role, address)
        for role, address in (
            ("rootcoord", OWN),
            ("datacoord", "b:2"),
            ("querycoord", "b:2"),
            ("proxy", OWN),
            ("querynode", "c:3"),
        )
    ]
    peers = ClusterPeers(meta, dial)
    await peers.start()
    there = [RoleStatus(f"{s.info.role} {s.node_id}", "Healthy", s.info.address) for s in sessions]
    lacking = [RoleStatus("indexcoord", "Abnormal", "not active anywhere")]
    assert peers.missing_coordinators() == ["indexcoord"]
    assert [peers.why_not(role) for role in ("rootcoord", "indexcoord")] == ["", "indexcoord is not running"]
    assert peers.elsewhere(OWN) == [there[1], there[2], there[4], *lacking]
    sessions.append(await join("indexcoord", OWN))
    await peers.stop()
    await peers.start()
    assert peers.elsewhere(OWN) == [there[1], there[2], there[4]]
    await peers.stop()
    for session in sessions:
        await session.close()
    await meta.close()


async def test_a_session_whose_record_is_gone_is_given_up_before_its_next_renewal() -> None:
    now_s = asyncio.get_running_loop().time
    meta = MemoryMeta(now_s)

    async def join() -> Session:
        return await Session.register(meta, "rootcoord", OWN, ttl_s=60, monotonic_s=now_s, exclusive=True)

    former = await join()
    peers = ClusterPeers(meta, dial)
    peers.end_with_record(former)  # the peers may not know it yet
    await peers.start()
    await asyncio.sleep(1.0)
    assert former.is_valid()
    await meta.revoke_lease(former.lease)
    await asyncio.sleep(1.0)
    assert former.lost.is_set()
    assert not former.is_valid()
    successor = await join()
    peers.end_with_record(successor)
    await asyncio.sleep(1.0)
    await former.close()
    await successor.close()
    await asyncio.sleep(1.0)
    assert not successor.lost.is_set(), "it was closed in order"
    await peers.stop()
    await meta.close()


class Leaving:
    """A query coordinator that lets a node go at the ``calls``-th call, or whose answer is an error."""

    def __init__(self, calls: int, error: Exception | None = None) -> None:
        self.calls = calls
        self.asked: list[NodeID] = []
        self._error = error

    async def leave(self, node_id: NodeID) -> bool:
        self.asked.append(node_id)
        if self._error is not None:
            raise self._error
        if not self.calls:
            await asyncio.Event().wait()
        return len(self.asked) < self.calls


async def test_a_query_node_waits_until_others_serve_what_it_did_but_not_endlessly() -> None:
    loop = asyncio.get_running_loop()
    for coordinator, asked, waits_s in (
        (Leaving(1), 1, 0),
        (Leaving(4), 4, 1),
        (Leaving(1000), 80, 20),
        (Leaving(0), 1, 3),  # gives no answer
        (Leaving(9, Unavailable("querycoord is gone")), 1, 0),
    ):
        began_s = loop.time()
        await hand_over(coordinator.leave, NodeID(7), 20.0)
        assert (coordinator.asked, round(loop.time() - began_s)) == ([7] * asked, waits_s)
