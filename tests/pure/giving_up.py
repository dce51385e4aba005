"""Callers that give up: what their call has begun by then must not be left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from fakes import settle

from elanus.meta.memory import MemoryMeta


async def cut_off(meta: MemoryMeta, call: Coroutine[Any, Any, object]) -> None:
    """The caller gives up while the store takes its time over the call's first transaction."""
    txn, answered = meta.txn, asyncio.Event()

    async def slow(*args: Any, **kwargs: Any) -> int:
        await answered.wait()
        return await txn(*args, **kwargs)

    meta.txn = slow  # type: ignore[method-assign]
    calling = asyncio.ensure_future(call)
    await settle()
    calling.cancel()
    await settle()
    assert not calling.done(), "it has come to its transaction"
    meta.txn = txn  # type: ignore[method-assign]
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await settle()
