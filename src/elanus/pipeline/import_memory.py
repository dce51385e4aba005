"""How much memory a task of an import may take: its rows, and what reading a user's files takes in addition.

The files say little of that: a Parquet file of 300 kB may hold one text of a megabyte 50,000 times. So a task
that reads them is bounded, and an import that would outgrow the machine fails alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from elanus.pipeline.import_plan import FileRows
from elanus.pipeline.task_memory import bounded_memory, memory_limit_bytes

SURVEY_BYTES = 2 << 30
"""For the heads and ends of files: a footer of Parquet grows fortyfold when it is read."""
_READING_BYTES = 1 << 30
_COPIES = 4
"""How often a task holds its rows: while they are put together, sorted and encoded there are others."""
_LIST_COPIES = 5
"""How often it holds a JSON list, which is decoded as a whole: text, rows, characters if one is wrong."""
_NAMED_MAX = 3
_REMEDY = (
    "write Parquet files with smaller row groups and shorter values, and other files as several; or raise "
    "imports.task_mb"
)


@contextmanager
def bounded_import(more_bytes: int, parts: Sequence[FileRows]) -> Iterator[None]:
    """Bound the memory of the task that reads these files. Raises `InsufficientMemory`, which names them."""
    names = [part.file for part in parts]
    shown = ", ".join(names[:_NAMED_MAX]) + (" …" if len(names) > _NAMED_MAX else "")
    with bounded_memory(min(more_bytes, memory_limit_bytes() * 3 // 4), f"reading {shown}", _REMEDY):
        yield


def reading_bytes(rows_bytes: int, parts: Iterable[FileRows] = ()) -> int:
    """Return how much a task may take that holds so many bytes of rows of these files."""
    lists = (
        size
        for part in parts
        for name, size in zip(part.names, part.sizes_bytes, strict=False)
        if name.endswith(".json")
    )
    return _READING_BYTES + _COPIES * rows_bytes + _LIST_COPIES * max(lists, default=0)
