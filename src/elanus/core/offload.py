"""Blocking work off the event loop: in a thread, or inline in the simulator and in tests.

Work of different purposes has different threads. Loading segments can keep threads busy for minutes; if an
insert had to wait for one of them in order to be encoded, the ticks of its pchannels would wait too, and with
them the strong reads of every collection on these pchannels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking function and returns its result. Raises what the function raises."""

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T: ...


@dataclass(frozen=True, slots=True)
class Pools:
    """Where blocking work runs, by purpose. No purpose waits for another's work.

    ``encoding``: of large inserts. ``loading``: of segments. ``deletes``: applying many of them.
    ``arrivals``: preparing the rows of large inserts for reads. ``interim``: indexes of growing rows.
    ``files``: the coordinators' small files.
    ``delta_logs``: reading them for compaction.
    """

    encoding: Offload
    loading: Offload
    deletes: Offload
    arrivals: Offload
    interim: Offload
    files: Offload
    delta_logs: Offload

    @classmethod
    def one(cls, offload: Offload) -> Pools:
        """Return the same place for all purposes, where it does not matter."""
        return cls(offload, offload, offload, offload, offload, offload, offload)
