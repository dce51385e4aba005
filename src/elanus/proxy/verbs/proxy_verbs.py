"""All verbs of a proxy: one class per family, composed.

Verbs run in gRPC threads; calls to the coordinators go through the proxy's queues on the event loop.
"""

from __future__ import annotations

from elanus.proxy.verbs.access import Access
from elanus.proxy.verbs.alterations import Alterations
from elanus.proxy.verbs.clones import Cloning
from elanus.proxy.verbs.compaction import Compacting
from elanus.proxy.verbs.definitions import Definitions
from elanus.proxy.verbs.flushes import Flushes
from elanus.proxy.verbs.hybrid import HybridSearching
from elanus.proxy.verbs.imports import BulkImports
from elanus.proxy.verbs.indexes import IndexDefinitions
from elanus.proxy.verbs.introspection import Introspection
from elanus.proxy.verbs.loading import Loading
from elanus.proxy.verbs.query import Querying
from elanus.proxy.verbs.resource_groups import ResourceGroups
from elanus.proxy.verbs.search import Searching
from elanus.proxy.verbs.updates import Updates


class ProxyVerbs(
    Definitions,
    Alterations,
    IndexDefinitions,
    Loading,
    ResourceGroups,
    Updates,
    Flushes,
    Searching,
    HybridSearching,
    Querying,
    BulkImports,
    Compacting,
    Cloning,
    Introspection,
    Access,
):
    """Implements `elanus.proxy.api.verbs.Verbs`."""
