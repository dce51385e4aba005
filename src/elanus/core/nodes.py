"""The nodes of another role, as a role finds them: those that are there now."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from elanus.core.ids import NodeID

Api = TypeVar("Api")


class Nodes(Mapping[NodeID, Api]):
    """From node id to a client of the node. Changes as nodes come and go, a little behind them."""

    @abstractmethod
    async def refresh(self) -> None:
        """Know every node that had registered when this was called. Raises `Unavailable`."""

    @abstractmethod
    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, on the event loop. Returns what ends that."""
