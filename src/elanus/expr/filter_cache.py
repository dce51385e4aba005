"""Compiled filters, kept for the requests that repeat them.

The same text gives the same `BoundFilter` object, so that blocks recognize it and reuse their masks. A filter
that takes a sample is compiled for each request, so that each has a sample of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from elanus.core.schema import CollectionSchema
from elanus.expr.filter import BoundFilter, compile_filter

_KEPT = 512
KEPT_MAX_CHARS = 100_000
"""A longer filter, such as one that lists tens of thousands of keys, is compiled for each request."""


class FilterCache:
    """The filters of one collection. Safe for many threads."""

    def __init__(self, schema: CollectionSchema) -> None:
        self._schema = schema
        self._compile = lru_cache(_KEPT)(lambda text: compile_filter(text, schema))

    def filter(self, text: str, values: Mapping[str, object]) -> BoundFilter:
        """Return the compiled filter. ``values``: of its templates. Raises `InvalidFilter`."""
        if values or len(text) > KEPT_MAX_CHARS:
            return compile_filter(text, self._schema, values)
        bound = self._compile(text)
        return compile_filter(text, self._schema) if bound.is_random else bound
