"""Which calls may be sent again when nobody knows whether the first one had its effect.

A call that breaks off (the peer was killed, the connection lost, the time over) has happened or has not.
Its caller may simply send it again only where twice does what once does, *and* the second answer is as good
as the first would have been. Such methods of the interfaces are marked: reads; allocations, where numbers
that nobody got harm nobody; reports and orders whose docstrings say that they may be repeated, or that name
what they mean by an id that is never given again.

Not marked are:

- definitions by name (create, drop, rename, alter). Between the two sendings somebody else may have defined
  the opposite, which the second would undo; and a drop that succeeded the first time finds nothing then;
- what begins a piece of work anew each time: an import, a compaction on request, a snapshot, a Spark job;
- commits: whether the first one counted is what the refusal of the second hides.

Their callers get `Unavailable` or `DeadlineExceeded`, and look before they decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
_MARK = "__repeatable__"


def repeatable(method: Method) -> Method:
    """Marks a method of a role's interface."""
    setattr(method, _MARK, True)
    return method


def is_repeatable(api: type[Any], name: str) -> bool:
    """Whether the interface's method ``name`` is marked. Raises `AttributeError` for one it lacks."""
    return bool(getattr(getattr(api, name), _MARK, False))
