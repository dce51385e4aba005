"""Which calls may be sent again when it is unknown whether the first one had its effect.

A call that breaks off (the peer was killed, the connection was lost, the time is over) may or may not have
taken effect. Its caller may simply repeat it only where doing it twice has the same effect as once, *and* the
second answer is as good as the first would have been. Such methods of the interfaces are marked: reads;
allocations, where unused numbers do no harm; reports and orders whose docstrings say that they may be
repeated, or that identify their subject by an id that is never reused.

Not marked are:

- definitions by name (create, drop, rename, alter). Between the two calls somebody else may have defined
  the opposite, which the second would undo; and a drop that succeeded the first time then finds nothing;
- calls that begin new work each time: an import, a compaction on request, a snapshot, a Spark job;
- commits: the refusal of the second would hide whether the first one succeeded.

Their callers get `Unavailable` or `DeadlineExceeded`, and check the state before they decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
_MARK = "__repeatable__"


def repeatable(method: Method) -> Method:
    """Mark a method of a role's interface as repeatable."""
    setattr(method, _MARK, True)
    return method


def is_repeatable(api: type[Any], name: str) -> bool:
    """Whether the interface's method ``name`` is marked. Raises `AttributeError` for one it lacks."""
    return bool(getattr(getattr(api, name), _MARK, False))
