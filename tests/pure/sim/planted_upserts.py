"""Bugs of upserts: into a collection with automatic keys, in partitions, and with a partition key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from elanus.core.ids import ALL_PARTITIONS
from elanus.core.messages import UpsertMessage, WriteMessage
from elanus.core.timestamps import Timestamp
from elanus.proxy.role import named_partitions
from elanus.proxy.role.fresh_keys import keys_of_ids
from elanus.proxy.role.queues import Turn
from elanus.proxy.role.shards import keys_by_shard
from elanus.proxy.role.writes import LogWriter, RowWrite, delete_messages
from elanus.proxy.verbs import row_writes


def upsert_in_two_records(patch: pytest.MonkeyPatch) -> None:
    """The old rows are deleted where they are, and the new ones go where their keys hash to."""
    row_write, gone = row_writes.row_write, {}

    def parted(cached: Any, partition_id: Any, rows: pa.RecordBatch, take: Any, *, replaces: bool) -> Any:
        key = cached.view.schema.primary_field
        if not replaces or not key.auto_id:
            return row_write(cached, partition_id, rows, take, replaces=replaces)
        new = rows.select([name for name in rows.schema.names if name != key.name])
        keys, write = row_write(cached, partition_id, new, take, replaces=False)
        gone[write.row_id_start] = keys_by_shard(rows.column(key.name), cached.view.vchannels)
        return keys, write

    async def write_rows(self: LogWriter, write: RowWrite, turn: Turn) -> None:
        messages = await self.place(write, turn.ts)
        replaced = gone.pop(write.row_id_start, ())
        messages += delete_messages(write.collection_id, write.partition_id, replaced, turn.ts)
        await self.append(turn, messages)

    patch.setattr("elanus.sim.client_verbs.row_write", parted)
    patch.setattr(LogWriter, "write_rows", write_rows)


def fresh_keys_anywhere(patch: pytest.MonkeyPatch) -> None:
    """The new row of an upsert is where the old one was, and deletes of its key go elsewhere."""

    def consecutive(replaced: pa.Array, shards: int, take_ids: Any) -> pa.Array:
        return keys_of_ids(take_ids(len(replaced)), len(replaced), replaced.type)

    patch.setattr(row_writes, "keys_in_shards_of", consecutive)


def upserts_delete_next_to_their_rows(patch: pytest.MonkeyPatch) -> None:
    """An upsert that moves a row to another partition leaves the old one where it was."""
    place = LogWriter.place

    async def placed(self: LogWriter, write: RowWrite, ts: Timestamp) -> list[WriteMessage]:
        messages = await place(self, write, ts)
        return [
            replace(m, deletes_in=m.partition_id) if isinstance(m, UpsertMessage) else m for m in messages
        ]

    patch.setattr(LogWriter, "place", placed)


def upserts_delete_in_all_partitions(patch: pytest.MonkeyPatch) -> None:
    """An upsert deletes the rows that other partitions have with its keys."""
    place = LogWriter.place

    async def placed(self: LogWriter, write: RowWrite, ts: Timestamp) -> list[WriteMessage]:
        messages = await place(self, write, ts)
        return [
            replace(m, deletes_in=ALL_PARTITIONS) if isinstance(m, UpsertMessage) else m for m in messages
        ]

    patch.setattr(LogWriter, "place", placed)


def partition_of_another_value(patch: pytest.MonkeyPatch) -> None:
    """A read by values of the partition key looks at the first value's partition alone."""
    of_values = named_partitions.partitions_of_values
    patch.setattr(
        named_partitions, "partitions_of_values", lambda values, of: of_values(values.slice(0, 1), of)
    )


BUGS = (
    ("upsert in two records", upsert_in_two_records, frozenset({"UPS1"})),
    ("fresh keys anywhere", fresh_keys_anywhere, frozenset({"DEL1", "VIS2"})),
    (
        "upserts delete next to their rows",
        upserts_delete_next_to_their_rows,
        frozenset({"DEL1", "VIS2", "VIS3"}),
        12,
        220,
    ),
    ("upserts delete in all partitions", upserts_delete_in_all_partitions, frozenset({"VIS1", "VIS4"})),
    ("partition of another value", partition_of_another_value, frozenset({"VIS1"}), 12, 232),
)
