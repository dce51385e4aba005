"""A watch in etcd ends when its connection has gone silent, however long nothing came through it before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc as stubs

from elanus.core.errors import Unavailable
from elanus.meta import etcd_link
from elanus.meta.etcd import EtcdMeta
from tests.e2e.relay import Relay

PING_MS = 100
QUIET_PINGS = 3
LATE_S = 15.0
ALLOWS_PINGS = [("grpc.http2.min_ping_interval_without_data_ms", 1), ("grpc.http2.max_ping_strikes", 0)]
"""etcd refuses pings only if they come more often than every five seconds."""


class FakeWatch(stubs.WatchServicer):  # type: ignore[misc]
    """An etcd in which nothing changes."""

    async def Watch(self, requests: AsyncIterator[Any], _context: Any) -> AsyncIterator[Any]:
        async for _ in requests:
            yield rpc.WatchResponse(created=True)


async def _until_quiet_pings(relay: Relay) -> None:
    """Return when only pings have come through for a while."""
    seen = changes = 0
    while changes < QUIET_PINGS * 2:
        if relay.carried_bytes != seen:
            seen, changes = relay.carried_bytes, changes + 1
        await asyncio.sleep(0.001)


@pytest.fixture
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    quick = dict.fromkeys(names, PING_MS)
    monkeypatch.setattr(etcd_link, "_OPTIONS", [(n, quick.get(n, v)) for n, v in etcd_link._OPTIONS])


@pytest.mark.usefixtures("quick_pings")
def test_a_watch_on_a_silent_connection_breaks_off_after_a_long_quiet_time() -> None:
    async def run() -> None:
        server = grpc.aio.server(options=ALLOWS_PINGS)
        stubs.add_WatchServicer_to_server(FakeWatch(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        relay = Relay(f"127.0.0.1:{port}")
        store = EtcdMeta([relay.address], root="root", owner="tests")
        try:
            async with asyncio.timeout(LATE_S), aclosing(store.watch("session/", 1)) as watch:
                following = asyncio.ensure_future(anext(watch))
                await _until_quiet_pings(relay)
                relay.stall()
                with pytest.raises(Unavailable, match="broke off"):
                    await following
        finally:
            await store.close()
            relay.close()
            await server.stop(0)

    asyncio.run(run())
