"""Compiled filters, output fields and planned searches, cached for repeated requests.

One `Plans` belongs to one cached collection and is discarded with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from elanus.api.querynode import NodeSearch
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.expr.filter_cache import FilterCache
from elanus.expr.identity_cache import IdentityCache
from elanus.proxy.api.search import SearchTemplate
from elanus.proxy.role.outputs import Outputs, resolve_outputs

_KEPT = 512


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The checked part that all searches of a template share. ``draft`` lacks vectors, metric, timestamps."""

    field: FieldSchema
    draft: NodeSearch
    outputs: Outputs


class Plans(FilterCache):
    """``searches``: the plans of searches that are repeated, by their templates."""

    def __init__(self, schema: CollectionSchema) -> None:
        super().__init__(schema)
        self.searches: IdentityCache[SearchTemplate, SearchPlan] = IdentityCache(_KEPT)
        self._resolve = lru_cache(_KEPT)(
            lambda requested, with_key: resolve_outputs(schema, requested, with_key=with_key)
        )

    def outputs(self, requested: tuple[str, ...], *, with_key: bool) -> Outputs:
        """Raises `FieldNotFound`."""
        return self._resolve(requested, with_key)
