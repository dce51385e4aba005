"""The query coordinator, as tests of its peers see it."""

from __future__ import annotations

from typing import Any

from fake_calls import Calls

from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID


class FakeQueryCoord:
    def __init__(self) -> None:
        self.calls = Calls()
        self.reading: tuple[SegmentID, ...] = ()
        self.statuses: list[Any] = []
        self.held: tuple[Any, ...] = ()
        self.resource_group: Any = None

    async def load(
        self,
        collection_id: CollectionID,
        partition_ids: tuple[PartitionID, ...],
        replicas: int,
        groups: tuple[str, ...] = (),
        fields: tuple[FieldID, ...] = (),
    ) -> None:
        self.calls.note(
            "load", (collection_id, partition_ids, replicas, groups, *((fields,) if fields else ()))
        )

    async def release(self, collection_id: CollectionID, partition_ids: tuple[PartitionID, ...]) -> None:
        self.calls.note("release", (collection_id, partition_ids))

    async def reload(self, collection_id: CollectionID) -> None:
        self.calls.note("reload", collection_id)

    async def loads(self, collection_id: CollectionID = CollectionID(0)) -> tuple[Any, ...]:
        self.calls.note("loads")
        return tuple(s for s in self.statuses if collection_id in (0, s.collection_id))

    async def held_segments(self) -> tuple[SegmentID, ...]:
        self.calls.note("held_segments")
        return self.reading

    async def serving(self, collection_id: CollectionID) -> tuple[Any, ...]:
        self.calls.note("serving", collection_id)
        return self.held

    async def create_resource_group(self, name: str, config: Any = None) -> None:
        self.calls.note("create_resource_group", name if config is None else (name, config))

    async def update_resource_groups(self, configs: Any) -> None:
        self.calls.note("update_resource_groups", configs)

    async def drop_resource_group(self, name: str) -> None:
        self.calls.note("drop_resource_group", name)

    async def list_resource_groups(self) -> tuple[str, ...]:
        return (self.resource_group.name,)

    async def describe_resource_group(self, name: str) -> Any:
        self.calls.note("describe_resource_group", name)
        return self.resource_group

    async def transfer_node(self, source: str, target: str, count: int) -> None:
        self.calls.note("transfer_node", (source, target, count))

    async def transfer_replica(
        self, collection_id: CollectionID, source: str, target: str, count: int
    ) -> None:
        self.calls.note("transfer_replica", (collection_id, source, target, count))
