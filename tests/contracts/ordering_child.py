"""A coordinator as a process of its own: it orders without end, until an order is refused."""

from __future__ import annotations

import asyncio
import sys

from elanus.api.datanode import DataNodeApi, FlushReason
from elanus.core.errors import CoordinatorReplaced
from elanus.core.ids import NodeID
from elanus.rpc.carrier import RpcChannel
from elanus.server.logs import configure_logging
from elanus.server.settings import LoggingSettings


async def order(address: str, session: int) -> None:
    node = RpcChannel(address).client(DataNodeApi, issued_by=NodeID(session))
    try:
        while True:
            await node.flush_segments(session, "v", (), FlushReason("size"))
    except CoordinatorReplaced as error:
        sys.stdout.write(error.message)


if __name__ == "__main__":
    configure_logging(LoggingSettings(), "coordinator")
    asyncio.run(order(sys.argv[1], int(sys.argv[2])))
