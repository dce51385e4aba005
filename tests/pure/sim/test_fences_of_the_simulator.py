"""The simulated log refuses a writer that was counted out, as strictly as that of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from elanus.core.errors import LeaseLost, NoSession
from elanus.core.ids import NodeID
from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.port import EntryHeader, NewEntry
from elanus.sim.chance import Chance
from elanus.sim.incarnation import Life
from elanus.sim.log import FencingHandle, SimLog
from elanus.sim.loop import VirtualLoop
from elanus.sim.plan import CALM, draw

pytestmark = pytest.mark.sim

PCHANNEL = "by-dev-rootcoord-dml_0"
ENTRY = NewEntry(EntryHeader(MsgKind.INSERT, Timestamp(1)), (b"row",))


def run(course: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(course)


def handle() -> FencingHandle:
    loop = asyncio.get_running_loop()
    log = SimLog(Chance(draw(1, CALM), loop.time, lambda fault: None), lambda *entry: None, lambda text: None)
    log.is_fencing = True
    made = log.handle(Life("proxy-1"))
    assert isinstance(made, FencingHandle)
    return made


def test_a_writer_that_no_fence_concerned_asks_before_its_first_append() -> None:
    async def course() -> None:
        log, asked = handle(), []

        async def over() -> None:
            asked.append(1)
            raise LeaseLost("the session is over")

        await log.fence(PCHANNEL, lambda writer: True)  # before the writer has a message there
        with pytest.raises(LeaseLost):
            await log.appender(NodeID(7), over).append(PCHANNEL, [ENTRY])
        assert asked
        assert log.end(PCHANNEL) == 0

    run(course())


def test_a_writer_asks_once_and_again_when_its_last_message_is_trimmed() -> None:
    async def course() -> None:
        log, asked = handle(), []

        async def there() -> None:
            asked.append(1)

        appender = log.appender(NodeID(7), there)
        first = await appender.append(PCHANNEL, [ENTRY])
        second = await appender.append(PCHANNEL, [ENTRY])
        assert second > first
        assert len(asked) == 1
        await log.trim(PCHANNEL, log.end(PCHANNEL))
        await appender.append(PCHANNEL, [ENTRY])
        assert len(asked) == 2
        await log.fence(PCHANNEL, lambda writer: writer == 7)
        with pytest.raises(NoSession):
            await appender.append(PCHANNEL, [ENTRY])

    run(course())
