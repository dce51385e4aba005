"""Beginning a coroutine at once, and waiting for it later, without a task.

A task begins in a later turn of the event loop, and costs two more turns to end. Work that only has to get in
line now, and is awaited by the same task, needs none of them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine that has run up to its first wait. To be awaited once, by the task that made it.

    Making it raises what the coroutine raises before its first wait.
    """

    __slots__ = ("_result", "_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work: Coroutine[Any, Any, T] | None = work
        self._waits_for: Any = None
        self._result: T
        try:
            self._waits_for = work.send(None)
        except StopIteration as ended:
            self._work, self._result = None, ended.value

    def __await__(self) -> Generator[Any, Any, T]:
        work, waits_for = self._work, self._waits_for
        if work is None:
            return self._result
        try:
            while True:
                try:
                    given = yield waits_for
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                    waits_for = work.throw(error)
                else:
                    waits_for = work.send(given)
        except StopIteration as ended:
            result: T = ended.value
            return result
