"""Clients of a collection that gets a field, loses it, and gets another of the same name, under load.

The value that a row has in the field says which of these fields it was written with. Rows that were written
with none, or with a former one, must answer with the default of the present one, wherever they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from elanus.core.consistency import ConsistencyLevel
from elanus.core.ids import CollectionID, FieldID
from elanus.core.invariants import InvariantBroken
from elanus.core.names import DEFAULT_DATABASE
from elanus.core.schema import DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.proxy.role.cache import CachedCollection
from elanus.sim.client_collections import EXTRA, extra_value
from elanus.sim.truth import KEY, VALUE
from elanus.sim.workload import Client

_NONE = FieldID(0)


class WideningClient(Client):
    """A client that changes fields, too, and reads the field that comes and goes."""

    async def _change_fields(self, name: str) -> str:
        """Drop the field if the collection has it, else add it with a default that no other one has."""
        cached = await self._system.ask(self._proxy(), "look", lambda verbs: verbs.collection(name))
        root = self._system.roles_of_clients.root
        if EXTRA in cached.view.schema.by_name:
            await self._define("drop", lambda: root.drop_field(DEFAULT_DATABASE, name, EXTRA, _NONE))
            return "the field is dropped"
        field = FieldSchema(_NONE, EXTRA, DataType.INT64, nullable=True, default_value=-self._number)
        await self._define("add", lambda: root.add_field(DEFAULT_DATABASE, name, field))
        self._system.trace.count("fields added")
        return f"the field is added, with {-self._number}"

    def _acknowledge(
        self,
        name: str,
        cached: CachedCollection,
        ts: Timestamp,
        keys: list[int],
        values: list[int],
        replaced: Sequence[int] = (),
    ) -> None:
        field = cached.view.schema.by_name.get(EXTRA)
        written = _NONE if field is None else field.field_id
        self._judge.extra_fields.update({(cached.collection_id, value): written for value in values})
        super()._acknowledge(name, cached, ts, keys, values, replaced)

    def _asked_of(self, cached: CachedCollection, fields: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f for f in fields if f != EXTRA or EXTRA in cached.view.schema.by_name)

    async def _query_wide(self, name: str, level: ConsistencyLevel | None = None) -> str:
        records = self._system.records
        before = dict(records.schema_changes)
        cached, result = await self._read(name, (KEY, VALUE, EXTRA), f"{KEY} >= 0", level)
        keys, values = (result.fields[column].to_pylist() for column in (KEY, VALUE))
        self._judge.check_rows(cached, result.ts, keys, values)
        field = cached.view.schema.by_name.get(EXTRA)
        stayed = before.get(cached.collection_id) == records.schema_changes[cached.collection_id]
        known = records.fields[cached.collection_id] == tuple(cached.view.schema.by_id)
        if field is None or not (stayed and known):
            return f"{len(keys)} rows at {result.ts}"
        extra = result.fields[EXTRA].to_pylist()
        self._check_extra(cached.collection_id, field, keys, values, extra)
        self._system.trace.count("changing fields judged")
        return f"{len(keys)} rows with {EXTRA} {field.field_id} at {result.ts}"

    def _check_extra(
        self,
        collection_id: CollectionID,
        field: FieldSchema,
        keys: list[int],
        values: list[int],
        extra: list[int | None],
    ) -> None:
        for key, value, found in zip(keys, values, extra, strict=True):
            written = self._judge.extra_fields.get((collection_id, value))
            own = extra_value(value, field.field_id)
            right = {own, field.default_value} if written is None else {field.default_value}
            if written == field.field_id:
                right = {own}
            if found not in right:
                text = (
                    f"key {key} with value {value} has {found} in field {field.field_id}, not one of {right}"
                )
                raise InvariantBroken("VIS4", f"{text}; it was written with field {written}", (key,))
