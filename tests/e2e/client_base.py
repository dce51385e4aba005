"""Shared by the checks of `client_program`: the account of outcomes, and collections to try things on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymilvus
from pymilvus import Collection, CollectionSchema, DataType, FieldSchema

VERSION = tuple(int(part) for part in pymilvus.__version__.split(".")[:2])
DIM = 8
VECTORS = np.random.default_rng(3).random((300, DIM), dtype=np.float32)
L2 = {"metric_type": "L2", "params": {}}
FLAT = L2 | {"index_type": "FLAT"}

REFUSED = "Answered with an error that says so"
SECTIONS = (
    "Connecting",
    "Databases",
    "Collections",
    "Writes",
    "Reads",
    "Types",
    "Indexes",
    "Filters",
    "Users",
    REFUSED,
)


class Program:
    """The checks, and what came of each."""

    def __init__(self) -> None:
        self.uri = ""
        self.names = 0
        self.outcomes: dict[str, dict[str, str]] = {}
        self._checks: list[tuple[str, str, bool, Callable[[], None]]] = []

    def check(
        self, section: str, title: str, *, needs: bool = True
    ) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Adds a check. ``needs``: whether the client has what it takes; no title: it runs several."""

        def add(function: Callable[[], None]) -> Callable[[], None]:
            self._checks.append((section, title, needs, function))
            return function

        return add

    def run_all(self) -> None:
        """Section by section, whichever module they come from."""
        self._checks.sort(key=lambda added: SECTIONS.index(added[0]))
        for section, title, needs, function in self._checks:
            if not needs:
                self.outcomes.setdefault(section, {})[title] = "absent"
            elif title:
                self.run(section, title, function)
            else:
                function()

    def run(self, section: str, title: str, function: Callable[[], None]) -> None:
        outcome = "yes"
        try:
            function()
        except Exception as error:  # noqa: BLE001 - whatever the client raises is the outcome
            (*_, place) = traceback.extract_tb(error.__traceback__)
            outcome = f"no: {type(error).__name__}: {error} ({place.line})"
        self.outcomes.setdefault(section, {})[title] = outcome


program = Program()
check = program.check


def new_name() -> str:
    program.names += 1
    return f"c{program.names}"


@contextmanager
def collection(
    *fields: FieldSchema,
    key: FieldSchema | None = None,
    vector: FieldSchema | None = None,
    made_with: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[Collection]:
    """A collection of a key, a vector and further fields, dropped afterwards.

    ``made_with``: options of the collection; ``options``: of its schema.
    """
    key = key or FieldSchema("key", DataType.INT64, is_primary=True)
    vector = vector or FieldSchema("v", DataType.FLOAT_VECTOR, dim=DIM)
    made = Collection(
        new_name(),
        CollectionSchema([key, *fields, vector], **options),
        consistency_level="Strong",
        **(made_with or {}),
    )
    try:
        yield made
    finally:
        made.drop()


def filled(made: Collection, *columns: Sequence[Any], rows: int = 300) -> Collection:
    """With rows 0, 1, 2 and so on, indexed by FLAT and loaded."""
    made.insert([list(range(rows)), *columns, VECTORS[:rows]])
    made.create_index("v", FLAT, sync=False)
    made.load()
    return made


def keys(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted(row["key"] for row in rows)
