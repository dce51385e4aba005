"""The families of RPCs that this release has: one class per subject, one method per RPC."""

from __future__ import annotations

from elanus.proxy.access.guard import SeesAll, Visibility
from elanus.proxy.api.verbs import Verbs
from elanus.proxy.wire.access import Access
from elanus.proxy.wire.admin import Admin
from elanus.proxy.wire.analysis import Analysis
from elanus.proxy.wire.collections import Collections
from elanus.proxy.wire.compaction import Compaction
from elanus.proxy.wire.databases import Databases
from elanus.proxy.wire.imports import BulkImports
from elanus.proxy.wire.indexes import Indexes
from elanus.proxy.wire.loading import Loading
from elanus.proxy.wire.partitions import Partitions
from elanus.proxy.wire.reads import Reads
from elanus.proxy.wire.resource_groups import ResourceGroups
from elanus.proxy.wire.schema_changes import SchemaChanges
from elanus.proxy.wire.snapshots import Snapshots
from elanus.proxy.wire.writes import Writes

_SEES_ALL = SeesAll()


def milvus_families(verbs: Verbs, deploy_mode: str, visible: Visibility = _SEES_ALL) -> tuple[object, ...]:
    """``deploy_mode`` is reported to clients: ``STANDALONE`` or ``DISTRIBUTED``.

    ``visible``: what lists show.
    """
    return (
        Databases(verbs, visible),
        Collections(verbs, visible),
        SchemaChanges(verbs),
        Partitions(verbs),
        Loading(verbs),
        Indexes(verbs),
        Writes(verbs),
        BulkImports(verbs),
        Compaction(verbs),
        Reads(verbs),
        Admin(verbs, deploy_mode),
        Analysis(verbs),
        ResourceGroups(verbs),
        Snapshots(verbs),
        Access(verbs),
    )
