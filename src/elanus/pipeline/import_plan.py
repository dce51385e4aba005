"""Cutting an import into tasks: which row groups of which files each task takes, and with which ids.

A task is given whole row groups, about as many rows as it may hold in memory, less when there would be
processors without work. Its rows come out as one segment per shard, or several of each where a row group
alone is larger than that; no two tasks share a segment, so nothing has to pass between them.

Each task has a range of ids of its own, twice its rows: the first half are row ids (and automatic keys), the
other half is for segments, of which there are never more than rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.imports import COMMAS, CsvFormat, Duplicates
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

NO_TASK = TaskID(0)
PART_BYTES_MIN = 32 * 1024 * 1024
"""A task is not made smaller than this only to give every processor one."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """``first_row``: its place within the file.

    Where rows are not counted (``is_counted`` false), which would mean reading them, ``rows`` is a bound of
    their number, and ``first_row`` is 0.
    """

    number: int
    first_row: int
    rows: int
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class FileRows:
    """A table, or some row groups of it: a file, or the NumPy files that are its ``columns``, of which
    ``file`` is the first.

    ``versions`` are those of the files when they were surveyed (`elanus.storage.port.ObjectInfo`), and
    ``sizes_bytes`` their sizes, in the order of `names`. ``csv``: the format of a CSV file.
    """

    file: str
    groups: tuple[RowGroup, ...]
    columns: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    csv: CsvFormat = COMMAS
    sizes_bytes: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The files."""
        return self.columns or (self.file,)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of a part that are left out because of their keys: a batch of the object at ``path``.

    ``digest``: of their numbers.
    """

    path: str
    batch: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """One task. Pickles; carries all that a task needs to know.

    ``vchannels`` are index-aligned with the shards. At most ``rows_max`` rows, and ``bytes_max`` of them,
    are held before segments are written. Ids from ``first_id`` on, two for each row, are the task's.
    ``stamp`` fills the timestamp column. ``source_url`` is the store that the files are in;
    ``scratch_dir`` a directory on the machine that runs the task. ``key_partitions``, ``rejects_max``: see
    `ImportOrder`. ``task_id``: of the import; 0 where no outcome is to be kept. ``left_out``: the rows that
    are not imported because of their keys; if ``duplicates`` is ``REJECT`` they are rows that do not fit.
    """

    attempt: int
    collection_id: CollectionID
    partition_id: PartitionID
    schema: CollectionSchema
    vchannels: tuple[str, ...]
    parts: tuple[FileRows, ...]
    first_id: int
    rows_max: int
    bytes_max: int
    stamp: Timestamp
    source_url: str
    store_url: str
    scratch_dir: str
    key_partitions: tuple[PartitionID, ...] = ()
    rejects_max: int = 0
    task_id: TaskID = NO_TASK
    duplicates: Duplicates = Duplicates.KEEP
    left_out: tuple[LeftOut, ...] = ()

    @property
    def key(self) -> str:
        """A name for what the task does: the same files, in the same versions, cut and written alike.

        It does not depend on the attempt, its ids, or where it runs.
        """
        left_out = tuple(replace(rows, path="") for rows in self.left_out)
        same = replace(self, attempt=0, first_id=0, stamp=NO_TIMESTAMP, scratch_dir="", left_out=left_out)
        return blake2b(repr(same).encode(), digest_size=16).hexdigest()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def first_segment_id(self) -> int:
        return self.first_id + self.rows


def rows_of_task(rows: int, row_bytes: int, rows_max: int, slots: int) -> int:
    """Return how many rows a task should take: at most ``rows_max``, less when ``slots`` would else stand
    idle."""
    fair_share = -(-rows // max(1, slots))
    least = PART_BYTES_MIN // max(1, row_bytes)
    return max(1, min(rows_max, max(fair_share, least)))


def cut(files: Sequence[FileRows], task_rows: int) -> list[tuple[FileRows, ...]]:
    """Return the files' row groups, in order, in parts of about ``task_rows`` rows: a group is never divided.

    A part is closed before the group that would overfill it, unless it is empty. Empty groups are left out.
    """
    parts: list[tuple[FileRows, ...]] = []
    taken: list[tuple[FileRows, RowGroup]] = []
    rows = 0
    for file, group in _groups(files):
        if taken and rows + group.rows > task_rows:
            parts.append(_by_file(taken))
            taken, rows = [], 0
        taken.append((file, group))
        rows += group.rows
    if taken:
        parts.append(_by_file(taken))
    return parts


def _groups(files: Sequence[FileRows]) -> Iterator[tuple[FileRows, RowGroup]]:
    for file in files:
        for group in file.groups:
            if group.rows:
                yield file, group


def _by_file(taken: Sequence[tuple[FileRows, RowGroup]]) -> tuple[FileRows, ...]:
    groups: dict[str, FileRows] = {}
    for file, group in taken:
        found = groups.get(file.file, replace(file, groups=()))
        groups[file.file] = replace(found, groups=(*found.groups, group))
    return tuple(groups.values())
