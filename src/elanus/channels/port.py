"""A broker of query channels, as a backend opens it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from elanus.api.query_channel import QueryChannels
from elanus.core.backends import Backend


class OpenChannels(QueryChannels, Protocol):
    """The connection of one process to the broker."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsBackend(Backend):
    """How the query channels of a scheme are opened.

    ``open(url)`` imports what it needs when it is called. It raises `elanus.core.errors.ElanusError`.
    """

    open: Callable[[str], Awaitable[OpenChannels]]
