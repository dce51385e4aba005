"""Compiled filters, output fields and planned searches, cached for repeated requests.

The same filter text gives the same `BoundFilter` object, so that query nodes recognize it and reuse their
masks. A filter that takes a sample is compiled for each request, so that each has a sample of its own. One
`Plans` belongs to one cached collection and is discarded with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from elanus.api.querynode import NodeSearch
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.expr import BoundFilter, compile_filter
from elanus.expr.identity_cache import IdentityCache
from elanus.proxy.api.search import SearchTemplate
from elanus.proxy.role.outputs import Outputs, resolve_outputs

_KEPT = 512
KEPT_MAX_CHARS = 100_000
"""A longer filter, such as one that lists tens of thousands of keys, is compiled for each request."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The checked part that all searches of a template share. ``draft`` lacks vectors, metric, timestamps."""

    field: FieldSchema
    draft: NodeSearch
    outputs: Outputs


class Plans:
    """``searches``: the plans of searches that are repeated, by their templates."""

    def __init__(self, schema: CollectionSchema) -> None:
        self.searches: IdentityCache[SearchTemplate, SearchPlan] = IdentityCache(_KEPT)
        self._schema = schema
        self._compile = lru_cache(_KEPT)(lambda text: compile_filter(text, schema))
        self._resolve = lru_cache(_KEPT)(
            lambda requested, with_key: resolve_outputs(schema, requested, with_key=with_key)
        )

    def filter(self, text: str, values: Mapping[str, object]) -> BoundFilter:
        """Raises `InvalidFilter`."""
        if values or len(text) > KEPT_MAX_CHARS:
            return compile_filter(text, self._schema, values)
        bound = self._compile(text)
        return compile_filter(text, self._schema) if bound.is_random else bound

    def outputs(self, requested: tuple[str, ...], *, with_key: bool) -> Outputs:
        """Raises `FieldNotFound`."""
        return self._resolve(requested, with_key)
