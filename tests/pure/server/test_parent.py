"""The end of a parent, seen by its child on standard input."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from elanus.server.parent import when_parent_ends


class Unbuffered:
    """Standard input without a buffer: a thread that is blocked in a read of it holds no lock of Python's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


def test_the_watch_ends_with_the_input_and_needs_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, parents = os.pipe()
    monkeypatch.setattr(sys, "stdin", Unbuffered(ours))

    async def watch() -> None:
        ended = asyncio.Event()
        when_parent_ends(asyncio.get_running_loop(), ended)
        os.write(parents, b"a line")
        assert not ended.is_set()
        os.close(parents)
        await ended.wait()

    asyncio.run(watch())
    os.close(ours)
