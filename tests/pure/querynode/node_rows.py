"""The collection of these tests, and the model of it: what a read must give, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from elanus.core.ids import ALL_PARTITIONS, FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

VECTOR = FieldID(103)


def schema_of(key_type: DataType) -> CollectionSchema:
    return CollectionSchema(
        "docs",
        (
            FieldSchema(FieldID(100), "id", key_type, is_primary=True, max_length=64),
            FieldSchema(FieldID(101), "value", DataType.INT64),
            FieldSchema(FieldID(102), "tag", DataType.VARCHAR, max_length=64, nullable=True),
            FieldSchema(VECTOR, "vector", DataType.FLOAT_VECTOR, dim=2),
            FieldSchema(FieldID(104), "$meta", DataType.JSON, is_dynamic=True),
        ),
        enable_dynamic=True,
    )


@dataclass(slots=True)
class Row:
    """A row of the model. ``died`` None: alive."""

    key: int | str
    value: int
    partition: int
    born: int
    died: int | None = None

    @property
    def vector(self) -> tuple[int, int]:
        return self.value, -self.value

    @property
    def tag(self) -> str | None:
        return None if self.value % 5 == 4 else "abc"[self.value % 3]

    def visible(self, ts: int) -> bool:
        return self.born <= ts and (self.died is None or ts < self.died)


class Model:
    """A list of rows, each with the timestamps of its birth and death."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def insert(self, rows: Iterable[Row]) -> None:
        self.rows += rows

    def delete(self, keys: Iterable[int | str], ts: int, partition: int = ALL_PARTITIONS) -> None:
        gone = set(keys)
        for row in self.rows:
            if row.key in gone and row.born < ts and row.died is None and partition in (0, row.partition):
                row.died = ts

    def visible(
        self, ts: int, partitions: Sequence[int] = (), where: Callable[[Row], bool] | None = None
    ) -> list[Row]:
        return [
            row
            for row in self.rows
            if row.visible(ts)
            and (not partitions or row.partition in partitions)
            and (where is None or where(row))
        ]

    def newest(self, rows: list[Row]) -> dict[int | str, Row]:
        """One row per key, the newest, in key order."""
        return {row.key: row for row in sorted(rows, key=lambda r: (r.key, r.born))}
