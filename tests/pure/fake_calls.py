"""The calls that a fake received, and the fakes of a lease and of a proxy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elanus.api.rootcoord import TickReport
from elanus.core.ids import CollectionID, NodeID
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp


@dataclass
class Calls:
    """The calls, in order, and the errors that are to be raised instead of an answer."""

    asked: list[tuple[str, Any]] = field(default_factory=list)
    failing: dict[str, BaseException] = field(default_factory=dict)

    def note(self, method: str, what: Any = None) -> None:
        self.asked.append((method, what))
        self.check(method)

    def check(self, method: str) -> None:
        if method in self.failing:
            raise self.failing[method]

    def of(self, method: str) -> list[Any]:
        return [what for name, what in self.asked if name == method]


class FakeLease:
    """Holds until the test says otherwise."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = NodeID(node_id)
        self.calls = Calls()
        self.given_up = ""
        self.valid = True

    def is_valid(self) -> bool:
        return self.valid

    async def confirm(self) -> None:
        self.calls.note("confirm")

    def give_up(self, why: str) -> None:
        self.given_up = why


class FakeProxy:
    def __init__(self) -> None:
        self.calls = Calls()
        self.node_id = NodeID(1)

    async def invalidate_collection(self, collection_id: CollectionID) -> None:
        self.calls.note("invalidate_collection", collection_id)

    async def invalidate_everything(self) -> None:
        self.calls.note("invalidate_everything")

    async def invalidate_access(self) -> None:
        self.calls.note("invalidate_access")

    async def invalidate_databases(self) -> None:
        self.calls.note("invalidate_databases")

    async def release_query_channels(self, collection_id: CollectionID) -> None:
        self.calls.note("release_query_channels", collection_id)

    async def return_allocations(self, collection_id: CollectionID) -> Timestamp:
        self.calls.note("return_allocations", collection_id)
        return NO_TIMESTAMP

    async def report_tick(self, now: Timestamp) -> TickReport:
        self.calls.note("report_tick")
        return TickReport(self.node_id, NO_TIMESTAMP, {})


class FakeTicks:
    """The ticks of a `ReadPath`: keeps what is requested, and writes none."""

    def __init__(self) -> None:
        self.requested: list[tuple[tuple[str, ...], Timestamp]] = []
        self.log_full = ""
        self.rewound: dict[tuple[str, ...], str] = {}

    def request(self, pchannels: tuple[str, ...], at_least: Timestamp) -> None:
        self.requested.append((pchannels, at_least))
