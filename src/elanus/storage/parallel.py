"""Many small calls of an object store, as many at a time as the store gains from.

A call to a remote store mostly waits: one after the other, ten thousand of 30 ms each take five minutes. A
local store reads at once, and would only lose time by threads; its writes wait for the disk (two to four
syncs each), and those of several threads become durable together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from elanus.storage.port import ObjectStore

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(
    store: ObjectStore, call: Callable[[ObjectStore, Item], Result], items: Sequence[Item]
) -> list[Result]:
    """Return ``call(store, item)`` for each item, in order.

    Raises the error of the first item that failed, once every call that had begun has ended: nothing is
    written after the caller knows. The calls that had not begun by then are not made.
    """
    return _each(store.calls_at_once, store, call, items)


def write_each(
    store: ObjectStore, call: Callable[[ObjectStore, Item], Result], items: Sequence[Item]
) -> list[Result]:
    """Like `for_each`, for calls that write an object each."""
    return _each(store.writes_at_once, store, call, items)


def _each(
    at_once: int, store: ObjectStore, call: Callable[[ObjectStore, Item], Result], items: Sequence[Item]
) -> list[Result]:
    threads = min(at_once, len(items))
    if threads <= 1:
        return [call(store, item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="elanus-objects") as pool:
        return list(pool.map(lambda item: call(store, item), items))
