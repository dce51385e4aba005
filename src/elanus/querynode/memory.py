"""Returning memory to the operating system.

When a segment is released, its memory is at first free only inside the process: Arrow's pool and glibc's heap
keep freed memory for the next allocation. After a large release that allocation may not follow for a long
time. So both are asked to return free memory, once the last read that held the segment has ended. A load
leaves the buffers of its files behind in the same way, and is followed by a return as well. Writes leave
those of their requests behind, for the next ones; they are returned when no more come.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from elanus.core.offload import Offload
from elanus.meta.turns import in_turns
from elanus.querynode.block import Block

_DELAY_S = 0.2
_LOADS_DELAY_S = 1.0
"""Loads come in series: one return serves all that end within this time."""
_QUIET_S = 5.0
"""How long no rows must have arrived for no more to be expected."""
_FREED_AT_ONCE = 200
"""Blocks that are freed before other tasks run. A block takes some 20 us, for its columns and its keys."""
WORTH_RETURNING_BYTES = 32 * 1024 * 1024


def return_free_memory() -> None:
    """Return free memory to the system. Takes milliseconds with a large heap: not for hot paths."""
    pa.default_memory_pool().release_unused()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc has it, other C libraries do not
        malloc_trim(0)


def when_gone(blocks: Sequence[Block], then: Callable[[], None]) -> None:
    """Call ``then`` when the last of these blocks is freed, in the thread that dropped it.

    Nothing is called if the blocks together are smaller than `WORTH_RETURNING_BYTES`.
    """
    _countdown(sum(block.memory_bytes for block in blocks), len(blocks), then)(blocks)


def _countdown(size_bytes: int, count: int, then: Callable[[], None]) -> Callable[[Iterable[Block]], None]:
    """Return a function that watches some of ``count`` blocks, which together have this size.

    ``then`` is called as by `when_gone`, once all have been watched and freed.
    """
    left = list(range(count))

    def one_gone() -> None:
        left.pop()
        if not left:
            then()

    def watch(blocks: Iterable[Block]) -> None:
        if size_bytes >= WORTH_RETURNING_BYTES:
            for block in blocks:
                weakref.finalize(block, one_gone).atexit = False

    return watch


class MemoryReturn:
    """Returns memory after large releases. ``offload``: where that is done."""

    def __init__(self, offload: Offload) -> None:
        self.offload = offload
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sleeping: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded_bytes = 0
        """The size of the segments that were loaded since the last return."""
        self._arrived_bytes = 0
        """The size of the rows that have arrived since then."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Begin nothing any more."""
        self._loop = None

    async def stop(self) -> None:
        """As `close`; returns when nothing runs any more."""
        self.close()
        for waiting in (self._sleeping, self._listening):
            if waiting is not None:
                waiting.cancel()  # all memory is freed soon
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def release(self, blocks: Sequence[Block]) -> None:
        """These blocks are freed once the last read that holds them has ended.

        Many are kept for a moment and freed in turns, between which other tasks run.
        """
        if len(blocks) <= _FREED_AT_ONCE or self._loop is None:
            when_gone(blocks, self._soon)
        else:
            self._track(asyncio.create_task(self._free_in_turns(list(blocks))))

    async def _free_in_turns(self, blocks: list[Block]) -> None:
        sizes_bytes = [block.memory_bytes async for block in in_turns(blocks)]
        watch = _countdown(sum(sizes_bytes), len(blocks), self._soon)
        while blocks:
            some = blocks[-_FREED_AT_ONCE:]
            del blocks[-_FREED_AT_ONCE:]
            watch(some)
            del some
            await asyncio.sleep(0)

    def loaded(self, size_bytes: int) -> None:
        """A segment of this size was loaded. For the loop thread."""
        self._loaded_bytes += size_bytes
        if self._loaded_bytes >= WORTH_RETURNING_BYTES:
            self._begin(_LOADS_DELAY_S)

    def arrived(self, size_bytes: int) -> None:
        """Rows of this size have been written. For the loop thread."""
        self._arrived_bytes += size_bytes
        if (
            self._arrived_bytes >= WORTH_RETURNING_BYTES
            and self._listening is None
            and self._loop is not None
        ):
            self._listening = asyncio.create_task(self._return_when_quiet())
            self._track(self._listening)

    def _soon(self) -> None:
        """Schedule `_begin` on the loop. May be called from any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._begin, _DELAY_S)

    def _begin(self, delay_s: float) -> None:
        if self._sleeping is None and self._loop is not None:
            self._sleeping = asyncio.create_task(self._return(delay_s))
            self._track(self._sleeping)

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _return_when_quiet(self) -> None:
        before_bytes = -1
        while before_bytes != self._arrived_bytes:
            before_bytes = self._arrived_bytes
            await asyncio.sleep(_QUIET_S)
        self._listening, self._arrived_bytes = None, 0
        await self.offload(return_free_memory)

    async def _return(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)  # released memory is freed by now, maybe with more
        self._sleeping, self._loaded_bytes = None, 0
        await self.offload(return_free_memory)
