"""All verbs of a proxy.

Every verb is synchronous, is called from a thread of the client port, and raises
`elanus.core.errors.ElanusError`.
"""

from __future__ import annotations

from typing import Protocol

from elanus.proxy.api.access import AccessVerbs
from elanus.proxy.api.collections import CollectionVerbs
from elanus.proxy.api.compaction import CompactionVerbs
from elanus.proxy.api.databases import DatabaseVerbs
from elanus.proxy.api.flushes import FlushVerbs
from elanus.proxy.api.imports import ImportVerbs
from elanus.proxy.api.indexes import IndexVerbs
from elanus.proxy.api.introspection import IntrospectionVerbs
from elanus.proxy.api.loading import LoadVerbs
from elanus.proxy.api.partitions import PartitionVerbs
from elanus.proxy.api.query import QueryVerbs
from elanus.proxy.api.resource_groups import ResourceGroupVerbs
from elanus.proxy.api.schema_changes import SchemaVerbs
from elanus.proxy.api.search import SearchVerbs
from elanus.proxy.api.snapshots import SnapshotVerbs
from elanus.proxy.api.writes import WriteVerbs


class Verbs(
    DatabaseVerbs,
    CollectionVerbs,
    SchemaVerbs,
    PartitionVerbs,
    LoadVerbs,
    ResourceGroupVerbs,
    IndexVerbs,
    WriteVerbs,
    FlushVerbs,
    ImportVerbs,
    CompactionVerbs,
    SearchVerbs,
    QueryVerbs,
    SnapshotVerbs,
    IntrospectionVerbs,
    AccessVerbs,
    Protocol,
):
    """All take databases and collections by name; aliases work wherever the reference allows them.

    A change of definitions returns when no proxy uses the former ones any more. Any verb raises
    `DatabaseNotFound` and `CollectionNotFound` for a name that it needs, `TaskQueueFull`, `NotReady` while
    the proxy starts or stops, `Unavailable` and `DeadlineExceeded` if a coordinator does not answer, and
    `ForceDenied` if properties of the database or collection deny it.
    """
