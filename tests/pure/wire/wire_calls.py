"""The operations of a client port over fake verbs, composed as a server composes them."""

from __future__ import annotations

from typing import Any

from fake_verbs import FakeVerbs

from elanus.api.connector import ConnectorApi, SnapshotLease
from elanus.core.errors import NotSupported
from elanus.core.timestamps import Timestamp
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AllowAll, Guard
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.calls import Calls, Observer
from elanus.proxy.wire.connector import Connector
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.operations import milvus_operations
from elanus.rpc.tracing import trace_id

LEASE = SnapshotLease(3, "file:///objects", "snapshots/3", Timestamp(9), 4000)


EVERY = "every privilege"


def observe_nothing(rpc: str, code: int, seconds: float) -> None: ...


class FakeSnapshots:
    """Implements `elanus.proxy.verbs.snapshots.Snapshots`, and keeps what was asked."""

    def __init__(self) -> None:
        self.taken: list[tuple[object, ...]] = []
        self.released: list[int] = []

    def take(self, *arguments: object, with_indexes: bool = False) -> SnapshotLease:
        self.taken.append(arguments)
        return LEASE

    def release(self, snapshot_id: int) -> None:
        self.released.append(snapshot_id)


class Recorder:
    """A guard that keeps what it is asked. ``refused``: the privileges that it refuses; `EVERY`: all."""

    def __init__(self, *refused: str) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.traces: list[str] = []
        self.refused = refused

    def allow(
        self, caller: Caller, privilege: str, kind: ObjectType, database: str, names: tuple[str, ...]
    ) -> None:
        self.asked.append((caller.client, privilege, kind, database, names))
        self.traces.append(trace_id())
        if EVERY in self.refused or privilege in self.refused:
            raise NotSupported(f"{privilege} is refused")


def calls_of(
    verbs: FakeVerbs,
    observe: Observer = observe_nothing,
    guard: Guard | None = None,
    snapshots: FakeSnapshots | None = None,
    families: tuple[object, ...] = (),
) -> Calls:
    """``families``: some in addition to those of the release."""
    rpcs = milvus_operations((*milvus_families(verbs, "STANDALONE"), *families))
    connector = Connector(verbs, snapshots or FakeSnapshots(), "file:///import")  # type: ignore[arg-type]
    return Calls((*rpcs, *interface_operations(ConnectorApi, connector)), guard or AllowAll(), observe)
