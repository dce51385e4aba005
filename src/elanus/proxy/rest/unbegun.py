"""Work in threads that nobody waits for any more: what has not begun is not done.

Requests wait for a thread. A client that gives up, or that sends and leaves, must not keep others waiting for
threads that answer it, nor fill the queue. Long reads that have begun end soon (see
`elanus.rpc.serving.waiting`). All other work that has begun is completed: a write is done or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from concurrent.futures import Executor, Future
from http import HTTPStatus
from typing import Any

from elanus.proxy.rest.entrance import error_reply
from elanus.proxy.rest.front import Reply
from elanus.rpc.serving.waiting import serves

_KEY = "elanus.unbegun"


class Unbegun:
    """The work of a connection's present request. For the event loop."""

    def __init__(self) -> None:
        self._work: Future[Reply] | None = None
        self._is_given_up = False

    def is_given_up(self) -> bool:
        """Return whether the client is gone. For any thread."""
        return self._is_given_up

    def attach(self, scope: MutableMapping[str, Any]) -> None:
        """Have the request with this scope note its work here."""
        scope[_KEY] = self

    def note(self, work: Future[Reply]) -> None:
        self._work = work
        if self._is_given_up:
            work.cancel()

    def give_up(self) -> None:
        """The client is gone."""
        self._is_given_up = True
        if self._work is not None:
            self._work.cancel()  # does nothing to what has begun


async def in_thread(workers: Executor, scope: MutableMapping[str, Any], work: Callable[[], Reply]) -> Reply:
    """Do the work of the request with this scope, unless its client leaves before a thread has begun it."""
    unbegun = scope.get(_KEY)
    if isinstance(unbegun, Unbegun):
        begun = workers.submit(_attended, work, unbegun.is_given_up)
        unbegun.note(begun)
    else:
        begun = workers.submit(work)
    try:
        return await asyncio.wrap_future(begun)
    except asyncio.CancelledError:
        if not begun.cancelled():
            raise
        return error_reply(HTTPStatus.SERVICE_UNAVAILABLE, "the client has left, or the server stops")


def _attended(work: Callable[[], Reply], is_gone: Callable[[], bool]) -> Reply:
    serves(is_gone)
    try:
        return work()
    finally:
        serves(None)
