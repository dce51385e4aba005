"""Loads of small segments that wait for their turn are read together, in one step of a thread.

A node that starts may load twenty thousand segments. Reading a small one takes a few milliseconds. Going to a
thread and back takes as long when the event loop and the threads compete for the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from elanus.api.querynode import LoadSegment
from elanus.core.errors import NotReady
from elanus.core.offload import Offload
from elanus.querynode.loaded_collection import LoadedCollection
from elanus.querynode.sealed import SealedSegment

BATCH_MAX = 16
BATCH_BYTES_MAX = 4 * 1024 * 1024
Read = Callable[[LoadSegment], SealedSegment]
Outcome = SealedSegment | Exception


@dataclass(eq=False, slots=True)
class _Batch:
    done: asyncio.Future[list[Outcome]]
    requests: list[LoadSegment] = field(default_factory=list)
    size_bytes: int = 0

    def takes(self, size_bytes: int) -> bool:
        return len(self.requests) < BATCH_MAX and self.size_bytes + size_bytes <= BATCH_BYTES_MAX

    def add(self, request: LoadSegment, size_bytes: int) -> int:
        """Return the request's place."""
        self.requests.append(request)
        self.size_bytes += size_bytes
        return len(self.requests) - 1


class LoadBatches:
    """For the loop thread."""

    def __init__(self) -> None:
        self._open: dict[LoadedCollection, _Batch] = {}
        """Batches that wait for their collection's turn; more requests may join them. Those of a collection
        that was loaded again meanwhile do not: it may have other fields."""

    async def load(
        self, collection: LoadedCollection, request: LoadSegment, read: Read, offload: Offload
    ) -> SealedSegment:
        """Return what ``read`` returns for the request when it is the collection's turn.

        ``offload``: where it is read. Raises what ``read`` raises.
        """
        size_bytes = _size_bytes(request)
        if not collection.loads.locked() or size_bytes > BATCH_BYTES_MAX:
            async with collection.loads:
                collection.check_loadable(request)
                return await offload(read, request)
        batch = self._open.get(collection)
        if batch is None or not batch.takes(size_bytes):
            batch = _Batch(asyncio.get_running_loop().create_future())
            self._open[collection] = batch
            batch.add(request, size_bytes)
            outcome = (await self._read(collection, batch, read, offload))[0]
        else:
            place = batch.add(request, size_bytes)
            outcome = (await asyncio.shield(batch.done))[place]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _read(
        self, collection: LoadedCollection, batch: _Batch, read: Read, offload: Offload
    ) -> list[Outcome]:
        try:
            async with collection.loads:
                self._close(collection, batch)
                outcomes = await offload(_read_all, read, batch.requests)
        except BaseException as error:
            self._close(collection, batch)
            batch.done.set_exception(NotReady(f"the load was interrupted: {error!r}; it is tried again"))
            batch.done.exception()  # there may be nobody else who waits for it
            raise
        batch.done.set_result(outcomes)
        return outcomes

    def _close(self, collection: LoadedCollection, batch: _Batch) -> None:
        if self._open.get(collection) is batch:
            del self._open[collection]


def _size_bytes(request: LoadSegment) -> int:
    return request.manifest.size_bytes + sum(file.size_bytes for file in request.indexes)


def _read_all(read: Read, requests: Sequence[LoadSegment]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for request in requests:
        try:
            outcomes.append(read(request))
        except Exception as error:  # noqa: BLE001 - each caller gets its own
            outcomes.append(error)
    return outcomes
