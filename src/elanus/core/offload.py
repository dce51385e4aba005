"""Blocking work off the event loop: in a thread, or inline in the simulator and in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking function and returns its result. Raises what the function raises."""

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T: ...
