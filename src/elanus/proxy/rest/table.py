"""The table of all endpoints, by path."""

from __future__ import annotations

from collections.abc import Mapping

from elanus.proxy.rest import (
    access,
    clones,
    collections,
    entities,
    estimates,
    indexes,
    jobs,
    keys,
    operating,
    partitions,
    snapshots,
)
from elanus.proxy.rest.endpoint import Endpoint

PREFIX = "/v2/vectordb/"
_FAMILIES = (
    collections,
    clones,
    entities,
    partitions,
    indexes,
    access,
    keys,
    jobs,
    operating,
    snapshots,
    estimates,
)


def _table() -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for family in _FAMILIES:
        for endpoint in family.ENDPOINTS:
            if endpoint.path in found:
                raise ValueError(f"two endpoints have the path {endpoint.path}")
            found[endpoint.path] = endpoint
    return found


TABLE: Mapping[str, Endpoint] = _table()
"""``path`` below `PREFIX` to the endpoint."""
