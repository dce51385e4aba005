"""A role whose interfaces are implemented by several of its parts, each of which answers its own calls.

A role offers its parts as an attribute ``parts``; a carrier calls the part that implements the method. A role
without that attribute answers all calls itself.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, TypeVar

Api = TypeVar("Api")


class Parts:
    """The parts of a role by the methods that they implement, as attributes: ``parts.flush(...)``."""

    def __init__(self) -> None:
        self._parts: dict[str, object] = {}

    def add(self, api: type[Api], part: Api) -> None:
        """Have a part answer the calls of an interface. Raises `ValueError` if another part does."""
        for name in _calls_of(api):  # type: ignore[arg-type] # every class is hashable
            if name in self._parts:
                raise ValueError(f"two parts of a role implement {name}")
            self._parts[name] = part

    def __getattr__(self, method: str) -> Any:
        part = None if method.startswith("_") else self._parts.get(method)
        if part is None:
            raise AttributeError(f"no part of the role implements {method}")
        return getattr(part, method)


@functools.cache
def _calls_of(api: type[object]) -> tuple[str, ...]:
    """Return the names of an interface's calls. Kept: a restarted role has the same interfaces."""
    return tuple(name for name, _ in inspect.getmembers(api, inspect.iscoroutinefunction))


def method_of(role: object, method: str) -> Any:
    """Return the bound method that answers a call to the role. Raises `AttributeError` if it has none."""
    parts = getattr(role, "parts", None)
    return getattr(parts if isinstance(parts, Parts) else role, method)
