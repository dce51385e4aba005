"""The thread that renews leases, on a real etcd: a loop that is kept busy does not lose its session."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from elanus.core.clock import SystemClock
from elanus.devcluster.etcd import Etcd
from elanus.meta.etcd import EtcdMeta
from elanus.meta.keeper import LeaseKeeper
from elanus.meta.session import Session

pytestmark = pytest.mark.services

TTL_S = 2
"""etcd keeps no shorter lease as it comes."""
BUSY_S = 2 * TTL_S
LATE_S = 10.0


def test_a_busy_loop_keeps_its_session_by_the_thread_alone(etcd_server: Etcd) -> None:
    root = uuid.uuid4().hex
    elapsed_s = SystemClock().elapsed_s

    def connect(owner: str) -> EtcdMeta:
        return EtcdMeta([etcd_server.endpoint], root=root, owner=owner)

    async def run() -> None:
        meta = connect("loop")
        keeper = LeaseKeeper(lambda: connect("thread"), elapsed_s)
        keeper.start()
        sessions = [
            await Session.register(meta, role, "here:1", ttl_s=TTL_S, monotonic_s=elapsed_s, keeper=given)
            for role, given in (("querynode", keeper), ("proxy", None))
        ]
        kept, alone = sessions
        time.sleep(BUSY_S)  # noqa: ASYNC251 - the loop is to stand still
        await asyncio.wait_for(alone.lost.wait(), LATE_S)
        assert kept.is_valid()
        assert not kept.lost.is_set()
        assert [key for key, _ in await meta.list("session/querynode")] == ["session/querynode-1"]
        for session in sessions:
            await session.close()
        assert await meta.list("session/querynode") == []
        await keeper.close()
        await meta.close()

    asyncio.run(run())
