"""The verbs that write rows: insert, upsert, update, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import PartlyWritten
from elanus.core.partial_update import ArrayChange
from elanus.core.timestamps import Timestamp

if TYPE_CHECKING:  # the cache imports the filter language and the indexes, which the wire does not need
    from elanus.proxy.role.cache import CachedCollection

_NO_KEYS = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class Insert:
    """``rows``: the ``arrow_schema`` of ``collection``, without the primary key when it is auto-id.

    An upsert into an auto-id collection includes the primary key, which identifies the rows to replace.
    ``partition`` "": the default one, or those of a partition key. ``client``: the writing client, identified
    as in `elanus.core.consistency.ReadConsistency.client`.
    """

    collection: CachedCollection
    partition: str
    rows: pa.RecordBatch
    client: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """``rows``: the primary key and the columns that change, in the order of the schema.

    ``changes``: of arrays that are extended or lose elements; others are replaced. ``client``: as in
    `Insert`.
    """

    collection: CachedCollection
    partition: str
    rows: pa.RecordBatch
    changes: Mapping[str, ArrayChange] = field(default_factory=dict)
    client: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete of the rows that a filter names by their keys, or else of those that it matches now.

    ``partition`` "": in all of them. ``filter_values``: of the filter's placeholders. ``client``: as in
    `Insert`.
    """

    collection: CachedCollection
    partition: str
    filter: str
    filter_values: Mapping[str, object] = field(default_factory=dict)
    client: str = ""


@dataclass(frozen=True, slots=True)
class MutationResult:
    """``primary_keys``: an int64 or string array of the rows written (or deleted, where known)."""

    primary_keys: pa.Array
    insert_count: int
    delete_count: int
    upsert_count: int
    ts: Timestamp


class PartialMutation(PartlyWritten):
    """Only some rows of a request were stored, or only some keys deleted.

    ``primary_keys``: of all rows of the request. ``stored``: which of them took effect, shape (rows,), bool.
    """

    def __init__(
        self,
        message: str,
        primary_keys: pa.Array = _NO_KEYS,
        stored: Sequence[bool] | npt.NDArray[np.bool_] = (),
    ) -> None:
        super().__init__(message)
        self.primary_keys = primary_keys
        self.stored = np.asarray(stored, dtype=bool)


class WriteVerbs(Protocol):
    """A write returns when it is durable. It may block while back-pressure slows it.

    Raises `InvalidParameter`, `PartitionNotFound`; `RateLimited`, `MemoryFull`, `DiskFull` and
    `DiskLimitExceeded` before anything is written; `LeaseLost` if it may not have been written in time, and
    `PartialMutation` if only some of it was stored.
    """

    def insert(self, request: Insert) -> MutationResult: ...
    def upsert(self, request: Insert) -> MutationResult:
        """Delete the rows with these keys and insert the new ones, in one record each."""
        ...

    def update(self, request: Update) -> MutationResult:
        """Replace some columns of rows: an upsert that keeps the others. Raises `CollectionNotLoaded`."""
        ...

    def delete(self, request: Delete) -> MutationResult:
        """Many matching rows are deleted in steps: a failure leaves those before it done.

        Raises `InvalidFilter`; `CollectionNotLoaded` unless the filter names keys.
        """
        ...
