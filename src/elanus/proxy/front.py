"""The front: what each verb of the Milvus API does, in domain terms.

Implements `elanus.proxy.api.Front`, composed of one class per family of verbs. Everything here runs in
gRPC threads; what concerns the coordinators goes through the proxy's queues on the event loop.
"""

from __future__ import annotations

from elanus.proxy.compacting import Compacting
from elanus.proxy.definitions import Definitions
from elanus.proxy.imports import BulkImports
from elanus.proxy.insight import Insight
from elanus.proxy.loading import Loading
from elanus.proxy.mutations import Mutations
from elanus.proxy.resource_groups import ResourceGroups


class ProxyFront(Definitions, Loading, ResourceGroups, Mutations, BulkImports, Compacting, Insight):
    """Every verb of a proxy."""
