"""Object paths. Their shape follows the reference; the last part is unique to the attempt that wrote it.

::

    insert_log/<collection>/<partition>/<segment>/<name>.parquet
    stats_log/<collection>/<partition>/<segment>/<name>.json
    delta_log/<collection>/<vchannel>/<name>.parquet
    index_files/<build>/<version>/<partition>/<segment>/<name>
    manifests/<collection>/<segment>/<name>.json
    snapshots/<collection>/<name>.json
    progress/<job>/<what a task reported>
    progress/outcomes-<import>/<name>.msgpack
    progress/keys-<import>/<name>.arrow

The manifest of a vchannel's delta logs has the vchannel's name in place of the segment. Names of files
that an attempt wrote begin with its number (`elanus.core.attempts.stamped`).

Because a name is never used twice, a job that ran twice or resumed late cannot touch the files of
another attempt: a file that no manifest names is garbage, regardless of its writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elanus.core.attempts import number_in
from elanus.core.gc import ObjectName
from elanus.core.ids import BuildID, CollectionID, PartitionID, SegmentID, TaskID

FORMAT_VERSION = 1
"""The format version of everything this package writes; it is recorded in every file."""
INSERT_LOG = "insert_log"
STATS_LOG = "stats_log"
DELTA_LOG = "delta_log"
INDEX_FILES = "index_files"
MANIFESTS = "manifests"
SNAPSHOTS = "snapshots"
PROGRESS = "progress"
PREFIXES = (INSERT_LOG, STATS_LOG, DELTA_LOG, INDEX_FILES, MANIFESTS, SNAPSHOTS, PROGRESS)
"""All prefixes that objects are written to. Garbage collection sweeps each of them."""


def insert_log_path(collection: CollectionID, partition: PartitionID, segment: SegmentID, name: str) -> str:
    return f"{INSERT_LOG}/{collection}/{partition}/{segment}/{name}.parquet"


def stats_log_path(collection: CollectionID, partition: PartitionID, segment: SegmentID, name: str) -> str:
    return f"{STATS_LOG}/{collection}/{partition}/{segment}/{name}.json"


def delta_log_path(collection: CollectionID, vchannel: str, name: str) -> str:
    return f"{DELTA_LOG}/{collection}/{vchannel}/{name}.parquet"


def index_file_path(
    build: BuildID, version: int, partition: PartitionID, segment: SegmentID, name: str
) -> str:
    return f"{INDEX_FILES}/{build}/{version}/{partition}/{segment}/{name}"


def manifest_path(collection: CollectionID, segment: SegmentID, name: str) -> str:
    return f"{MANIFESTS}/{collection}/{segment}/{name}.json"


def delta_list_path(collection: CollectionID, vchannel: str, name: str) -> str:
    """Return the path of the manifest that lists a vchannel's delta logs."""
    return f"{MANIFESTS}/{collection}/{vchannel}/{name}.json"


def checked_path(path: str) -> str:
    """Return the path itself. Raises `ValueError` for a path that no object can have."""
    parts = path.split("/")
    if not all(parts) or any(part.startswith(".") for part in parts):
        raise ValueError(f"object path {path!r}: no empty parts, and none may start with a dot")
    return path


def snapshot_path(collection: CollectionID, name: str) -> str:
    return f"{SNAPSHOTS}/{collection}/{name}.json"


def progress_prefix(job: str) -> str:
    return f"{PROGRESS}/{job}"


def progress_path(job: str, name: str) -> str:
    """Return the path of a task's progress report, see `elanus.pipeline.progress`."""
    return f"{PROGRESS}/{job}/{name}"


def import_outcomes_prefix(task: TaskID) -> str:
    return f"{PROGRESS}/outcomes-{task}"


def import_outcome_path(task: TaskID, name: str) -> str:
    """Return the path of what a task of an import has written, see `elanus.pipeline.import_outcomes`."""
    return f"{import_outcomes_prefix(task)}/{name}.msgpack"


def import_keys_path(task: TaskID, name: str) -> str:
    """Return the path of keys, or numbers of rows, that tasks of an import pass on to later ones."""
    return f"{PROGRESS}/keys-{task}/{name}.arrow"


def parse(path: str) -> ObjectName | None:
    """Return the parts of a path; None for a path that none of the functions above makes."""
    prefix, *parts = path.split("/")
    if not parts:
        return None
    name, *ids = reversed(parts)
    if prefix in (INSERT_LOG, STATS_LOG) and len(ids) == 3 and _are_ids(ids):
        return ObjectName(ids[0], number_in(name))
    if prefix in (DELTA_LOG, MANIFESTS) and len(ids) == 2 and _are_ids(ids[1:]):
        return ObjectName(ids[0], number_in(name))
    if prefix == INDEX_FILES and len(ids) == 4 and _are_ids(ids):
        segment, _, version, build = ids
        return ObjectName(segment, build_id=int(build), version=int(version))
    if prefix == SNAPSHOTS and len(ids) == 1 and _are_ids(ids):
        return ObjectName(ids[0], number_in(name))
    if prefix == PROGRESS and len(ids) == 1:
        return ObjectName(ids[0], number_in(name))  # a report has no number, an import's outcome has
    return None


def segments_of(paths: Iterable[str]) -> frozenset[SegmentID]:
    """Return the segments that these files of rows were written for; other files are left out."""
    names = (parse(path) for path in paths if path.startswith(f"{INSERT_LOG}/"))
    return frozenset(SegmentID(int(name.owner)) for name in names if name is not None)


def _are_ids(parts: Sequence[str]) -> bool:
    return all(part.isascii() and part.isdigit() for part in parts)
