"""The records of the coordinators about databases, collections, partitions, indexes and vchannels.

Plain values: they are stored as JSON in the metadata and sent between the roles unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, DatabaseID, FieldID, IndexID, PartitionID
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp

COLLECTIONS_MAX_PROPERTY = "database.max.collections"
REPLICAS_PROPERTY = "database.replica.number"
GROUPS_PROPERTY = "database.resource_groups"


@dataclass(frozen=True, slots=True)
class Database:
    database_id: DatabaseID
    name: str
    created: Timestamp
    properties: Mapping[str, str] = field(default_factory=dict)


def collections_max(properties: Mapping[str, str]) -> int | None:
    """Return how many collections a database with these properties may have; None: as many as all may.

    Raises `InvalidParameter` for a value that is not a whole number.
    """
    return _whole_number(properties, COLLECTIONS_MAX_PROPERTY)


def check_database_numbers(properties: Mapping[str, str]) -> None:
    """Check the properties of a database that are numbers. Raises `InvalidParameter`."""
    for name in (COLLECTIONS_MAX_PROPERTY, REPLICAS_PROPERTY):
        _whole_number(properties, name)


def load_defaults(properties: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    """Return the number of replicas and the resource groups of loads in a database that name none.

    1 and () if the database does not say. Raises `InvalidParameter` for a number that is none.
    """
    names = (name.strip() for name in properties.get(GROUPS_PROPERTY, "").split(","))
    return _whole_number(properties, REPLICAS_PROPERTY) or 1, tuple(name for name in names if name)


def _whole_number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InvalidParameter(f"invalid database property: {name} is {text!r}: give a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class Partition:
    partition_id: PartitionID
    name: str
    created: Timestamp


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All messages of a vchannel up to ``ts`` are in binlogs; reading continues at ``position``.

    ``position`` is the seek point: the oldest message later than ``ts`` is there or after it. ``tick`` and
    ``epoch`` are those in force just before that position, so that a reader that starts there classifies
    the same messages as late as every other reader.
    """

    ts: Timestamp
    position: int
    tick: Timestamp
    epoch: int


@dataclass(frozen=True, slots=True)
class Index:
    """An index definition. ``params`` is what the client sent; `elanus.index.resolve_index` reads it."""

    index_id: IndexID
    collection_id: CollectionID
    field_id: FieldID
    name: str
    params: Mapping[str, str]
    created: Timestamp


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the first rows of a clone come from.

    ``job_id``: the restore's number. ``snapshot``: the name of the named snapshot, "" for a clone as of a
    moment. ``collection``, ``collection_id``: the source's. ``path``: the snapshot object; ``pin_id``: the
    pin that keeps its files while ``is_done`` is false. ``moment``: what the clone shows of the source.
    ``indexes``: the source's. ``began_ms``, ``took_ms``: when the clone was requested, and how long it took.
    """

    job_id: int
    snapshot: str
    collection: str
    collection_id: CollectionID
    path: str
    pin_id: int
    moment: Timestamp
    indexes: tuple[Index, ...]
    began_ms: int
    took_ms: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Collection:
    """``vchannels`` are index-aligned with the shards; their pchannels follow from their names.

    ``dropped`` is set when the drop is decided: the collection is invisible from then on, and its record
    stays until its segments are marked dropped. ``starts``: where each vchannel begins. ``leaving``:
    partitions whose drop is decided but not yet announced to every role. ``schema_ts``: when the schema last
    changed (0: never). ``truncated``: rows up to this moment have expired (0: none have). ``becoming``: the
    schema that the collection is about to have: readers may have it already, and a restart completes this.
    ``origin``: of a clone. ``schema_changes``: how often the schema has changed.
    """

    collection_id: CollectionID
    database_id: DatabaseID
    name: str
    schema: CollectionSchema
    vchannels: tuple[str, ...]
    starts: Mapping[str, Checkpoint]
    partitions: tuple[Partition, ...]
    consistency_level: ConsistencyLevel
    created: Timestamp
    properties: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    dropped: Timestamp = NO_TIMESTAMP
    leaving: tuple[PartitionID, ...] = ()
    schema_ts: Timestamp = NO_TIMESTAMP
    truncated: Timestamp = NO_TIMESTAMP
    becoming: CollectionSchema | None = None
    origin: Origin | None = None
    schema_changes: int = 0

    @property
    def readers_schema(self) -> CollectionSchema:
        """The schema that segments are read, written and indexed with."""
        return self.becoming or self.schema

    def with_schema(self, schema: CollectionSchema, stamp: Timestamp) -> Collection:
        """Return the collection as it is after a change of its schema at that moment."""
        changes = self.schema_changes + 1
        return replace(self, schema=schema, becoming=None, schema_ts=stamp, schema_changes=changes)
