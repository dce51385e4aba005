"""The front: what each verb of the Milvus API does, in domain terms.

Implements `elanus.proxy.api.Front`, composed of one class per family of verbs. Everything here runs in
gRPC threads; what concerns the coordinators goes through the proxy's queues on the event loop.
"""

from __future__ import annotations

from elanus.proxy.definitions import Definitions
from elanus.proxy.insight import Insight
from elanus.proxy.loading import Loading
from elanus.proxy.mutations import Mutations
from elanus.proxy.pressure import Pressure
from elanus.proxy.proxy import Proxy


class ProxyFront(Definitions, Loading, Mutations, Insight):
    """One proxy's verbs. ``pressure`` slows or refuses writes before memory or disk run out."""

    def __init__(self, proxy: Proxy, pressure: Pressure) -> None:
        self._proxy = proxy
        self._pressure = pressure
