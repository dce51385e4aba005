"""Was a recorded history of registers linearizable? A checker for the observations of real clients.

Each key is a register: it holds a value or nothing (None). A history is *linearizable* when every operation
can be given a moment between its beginning and its end such that, in the order of those moments, each read
finds what was written last (Herlihy and Wing, 1990). Registers are checked key by key, which is enough:
linearizability is a local property.

The search goes through the history in order of time and keeps every *configuration* that explains it so far:
the register's value, and which of the pending operations have taken effect already (Wing and Gong, 1993; the
form with memoised configurations is Lowe's, 2017). When none is left, nothing explains the operation that
just ended.

A client that got no answer does not know whether its write took effect. Such a write may take effect at any
moment after its beginning, or never. The search stays small because written values are unique: a write
without an answer whose value nobody read may be left out, and one that was read must have taken effect by the
end of the first such read. Deletes without an answer are all alike, so the oldest may stand for any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

Value = int | None


@dataclass(frozen=True, slots=True)
class Operation:
    """A write of ``value`` to a key (None: a delete), or a read that found it.

    Times are from one clock, in any unit. ``ended`` is None when no answer arrived. A read without an answer
    carries no information and is left out of a history.
    """

    key: int
    reads: bool
    value: Value
    began: int
    ended: int | None


class _Configuration(NamedTuple):
    """``done``: pending operations that have taken effect, by number (their order of beginning)."""

    value: Value
    done: frozenset[int]


def unexplained(history: Iterable[Operation]) -> Operation | None:
    """Return the first operation of some key that no order explains; None when the history is linearizable.

    Raises `ValueError` for a value that was written twice: the check is not possible then.
    """
    by_key: dict[int, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    return next((found for key in sorted(by_key) if (found := _unexplained(by_key[key]))), None)


def _unexplained(operations: Sequence[Operation]) -> Operation | None:
    known = tuple(sorted(_settled(operations), key=lambda operation: operation.began))
    under_way: set[int] = set()
    reachable = {_Configuration(None, frozenset())}
    for number, ends in _events(known):
        if not ends:
            under_way.add(number)
            continue
        reachable = {
            _Configuration(value, done - {number})
            for value, done in _with_effect(reachable, number, under_way, known)
        }
        under_way.remove(number)
        if not reachable:
            return known[number]
    return None


def _with_effect(
    configurations: set[_Configuration], number: int, under_way: set[int], operations: Sequence[Operation]
) -> Iterator[_Configuration]:
    """Yield every configuration reachable from these in which that operation has taken effect."""
    waiting, seen = list(configurations), set(configurations)
    while waiting:
        configuration = waiting.pop()
        if number in configuration.done:
            yield configuration
            continue
        for other in _candidates(under_way - configuration.done, operations):
            operation = operations[other]
            if operation.reads and operation.value != configuration.value:
                continue
            found = _Configuration(operation.value, configuration.done | {other})
            if found not in seen:
                seen.add(found)
                waiting.append(found)


def _candidates(waiting: set[int], operations: Sequence[Operation]) -> Iterator[int]:
    """The operations that may take effect next; of the deletes without an answer only the oldest."""
    unanswered = [number for number in waiting if operations[number].ended is None]
    yield from (number for number in waiting if operations[number].ended is not None)
    if unanswered:
        yield min(unanswered)


def _events(operations: Sequence[Operation]) -> Iterator[tuple[int, bool]]:
    """Beginnings and ends by number, in order of time; at equal times, beginnings first."""
    moments = []
    for number, operation in enumerate(operations):
        moments.append((operation.began, False, number))
        if operation.ended is not None:
            moments.append((operation.ended, True, number))
    return ((number, ends) for _, ends, number in sorted(moments))


def _settled(operations: Sequence[Operation]) -> Iterator[Operation]:
    """The operations of one key. Unanswered writes get an end if their value was read, else are left out."""
    first_read: dict[Value, int] = {}
    written: set[Value] = set()
    for operation in operations:
        if operation.reads and operation.ended is not None:
            known = first_read.get(operation.value, operation.ended)
            first_read[operation.value] = min(known, operation.ended)
    for operation in operations:
        if operation.reads or operation.value is None:
            yield operation
            continue
        if operation.value in written:
            raise ValueError(f"value {operation.value} of key {operation.key} was written twice")
        written.add(operation.value)
        if operation.ended is not None:
            yield operation
        elif operation.value in first_read:
            yield replace(operation, ended=max(operation.began, first_read[operation.value]))
