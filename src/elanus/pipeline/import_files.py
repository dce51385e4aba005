"""Reading and checking the rows of users' files, batch by batch. Plain Arrow: no Spark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.given_types import check_columns
from elanus.core.imports import Duplicates
from elanus.core.schema import CollectionSchema
from elanus.pipeline.import_columns import Place, convert
from elanus.pipeline.import_plan import FileRows, ImportPlan, RowGroup
from elanus.pipeline.import_rejects import Rejects
from elanus.pipeline.import_sources import Source, opened, pinned
from elanus.storage.parquet import rows_per_group
from elanus.storage.port import ObjectStore
from elanus.text import with_computed_columns

GROUPS_MAX = 1 << 20
"""Of one table: 32 TB, where a file is cut by its size."""
_NONE: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


def survey(source: ObjectStore, found: Iterable[FileRows], schema: CollectionSchema) -> list[FileRows]:
    """Return tables (`elanus.pipeline.import_sources.tables`) with their row groups and the files' versions
    and sizes.

    Only heads and ends of files are read. Raises `InvalidParameter` for one that does not fit, as far as
    those show.
    """
    surveyed = []
    for table in found:
        known = pinned(source, table)
        with opened(source, known, schema) as rows:
            for columns in rows.schemas():
                check_columns(schema, columns, table.file)
            surveyed.append(replace(known, groups=_counted(table, rows.groups())))
    return surveyed


def _counted(table: FileRows, groups: Iterator[RowGroup]) -> tuple[RowGroup, ...]:
    """Raises `InvalidParameter` for more groups than a plan has room for: a file with holes in it may have
    any size."""
    found = tuple(islice(groups, GROUPS_MAX + 1))
    if len(found) > GROUPS_MAX:
        raise InvalidParameter(
            f"{table.file} has more than {GROUPS_MAX} row groups, or parts of that size: import it as "
            "several files"
        )
    return found


@dataclass(frozen=True, slots=True)
class Given:
    """Rows of a user's file as they are there. ``number``: that of the first one among all rows of the parts.

    ``rows``: in the form of ``table``, for its ``columns``.
    """

    table: Source
    rows: Any
    number: int
    place: Place
    part: FileRows
    group: RowGroup

    def changed(self) -> InvalidParameter:
        """Return the error for a file that has other rows than when it was surveyed."""
        return _changed(self.part, self.group)


def given_rows(
    parts: Iterable[FileRows],
    source: ObjectStore,
    schema: CollectionSchema,
    batch_rows: int,
    column: str = "",
) -> Iterator[Given]:
    """Yield the rows of these parts in their order, in batches of a row group at most.

    ``column``: as in `opened`. Raises `InvalidParameter` for a row group that has changed since the survey.
    """
    number = 0
    for part in parts:
        with opened(source, part, schema, column) as table:
            for group in part.groups:
                place, read = table.place(group), 0
                for rows in table.batches(group, batch_rows):
                    yield Given(table, rows, number, place.moved(read), part, group)
                    read += len(rows)
                    number += len(rows)
                if group.is_counted and read != group.rows:
                    raise _changed(part, group)


def import_rows(
    plan: ImportPlan,
    source: ObjectStore,
    rejects: Rejects | None = None,
    left_out: npt.NDArray[np.int64] = _NONE,
) -> Iterator[pa.RecordBatch]:
    """Yield the plan's rows in the form of ``schema.arrow_schema``, checked, in batches of a row group at
    most.

    ``left_out``: numbers, in their order, of rows that are left out because of their keys. Raises
    `InvalidParameter` for the first row that does not fit, unless ``rejects`` takes it.
    """
    schema, next_id = plan.schema, plan.first_id
    for given in given_rows(plan.parts, source, schema, rows_per_group(schema.row_bytes_estimate)):
        for rows, at in fitting(schema, given.table, given.rows, given.place, next_id, rejects):
            next_id += rows.num_rows
            if next_id > plan.first_segment_id:
                raise given.changed()
            yield _staying(plan, rows, given.number + at, left_out, given.place.moved(at), rejects)


def _staying(
    plan: ImportPlan,
    rows: pa.RecordBatch,
    number: int,
    left_out: npt.NDArray[np.int64],
    place: Place,
    rejects: Rejects | None,
) -> pa.RecordBatch:
    """Return the rows that are not left out. ``number``: that of the first one."""
    first, end = np.searchsorted(left_out, (number, number + rows.num_rows))
    if first == end:
        return rows
    gone = left_out[first:end] - number
    if plan.duplicates is Duplicates.REJECT:
        keys = rows.column(plan.schema.primary_field.name)
        for at in gone.tolist():
            error = place.duplicate(plan.schema.primary_field.name, at, keys[at].as_py())
            if rejects is None:
                raise error
            rejects.add(place.moved(at), error)
    stays = np.ones(rows.num_rows, dtype=np.bool_)
    stays[gone] = False
    return rows.filter(pa.array(stays))


def fitting(
    schema: CollectionSchema,
    table: Source,
    given: Any,
    place: Place,
    first_id: int,
    rejects: Rejects | None,
    column: str = "",
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the rows that fit, converted, and the place of the first one among the given.

    Where a row does not fit, the halves are looked at: its neighbors are found in as many steps as the batch
    can be halved. ``column``: the only one that is looked at. Raises `InvalidParameter` for a row that does
    not fit, unless ``rejects`` takes it.
    """
    try:
        batch = table.columns(given, place)
        if column in batch.schema.names:
            batch = batch.select([column])
        check_columns(schema, batch.schema, place.file)
        rows = convert(schema, batch, _auto_keys(schema, first_id, batch.num_rows), place)
    except InvalidParameter as error:
        if rejects is None:
            raise
        if len(given) == 1:
            rejects.add(place, error)
            return
        half = len(given) // 2
        for start, end in ((0, half), (half, len(given))):
            for rows, at in fitting(
                schema, table, _part(given, start, end), place.moved(start), first_id, rejects, column
            ):
                first_id += rows.num_rows
                yield rows, start + at
        return
    yield with_computed_columns(schema, rows), 0


def _part(given: Any, start: int, end: int) -> Any:
    return given.slice(start, end - start) if isinstance(given, pa.RecordBatch) else given[start:end]


def _changed(part: FileRows, group: RowGroup) -> InvalidParameter:
    return InvalidParameter(
        f"{part.file}: row group {group.number} changed while the import ran; run it again"
    )


def _auto_keys(schema: CollectionSchema, first: int, rows: int) -> pa.Array | None:
    key = schema.primary_field
    if not key.auto_id:
        return None
    return pa.array(np.arange(first, first + rows)).cast(key.arrow_type)
