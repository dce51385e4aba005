"""Rows of an import that do not fit, where the client wants the others: a list of them with the reasons.

Each task writes one file of JSON lines below ``rejects/<task>`` in the import directory: the file, the row's
number in it, and why it was refused. The name is the task's place in the import, so that a second try of a
task writes no second list.
"""

from __future__ import annotations

import msgspec

from elanus.core.errors import InvalidParameter
from elanus.pipeline.import_place import Place
from elanus.storage.port import ObjectExists, ObjectStore


class Rejected(msgspec.Struct):
    """A line. ``row`` counts from 0."""

    file: str
    row: int
    reason: str


class Rejects:
    """The rows that one task refuses: at most ``rows_max``."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._rows: list[Rejected] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, place: Place, error: InvalidParameter) -> None:
        """Raises `InvalidParameter` when there are too many."""
        self._rows.append(Rejected(place.file, place.row(0), error.message))
        check_count(len(self._rows), self._rows_max, error.message)

    def write(self, store: ObjectStore, path: str) -> None:
        """Write the list, unless it is empty."""
        if self._rows:
            lines = b"".join(msgspec.json.encode(row) + b"\n" for row in self._rows)
            try:
                store.put(path, lines)
            except ObjectExists:
                # An earlier try of the task wrote it. The files are pinned, so the list is the same.
                return


def check_count(rows: int, rows_max: int, last: str = "") -> None:
    """Raises `InvalidParameter` if more rows were refused than the client allows."""
    if rows > rows_max:
        raise InvalidParameter(
            f"more than {rows_max} rows do not fit (max_rejects)"
            + (f"; the last one: {last}" if last else "")
        )
