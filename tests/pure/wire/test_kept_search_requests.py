"""A proxy keeps little of the searches that it has parsed, whatever clients send."""

from __future__ import annotations

from wire_messages import field, resolved, schema, search_request

from elanus.core.schema import DataType
from elanus.proxy.wire.search_request import TemplateCache, decode_search

BOOKS = schema(field("vector", DataType.FLOAT_VECTOR, dim=4), field("x", DataType.INT64))


def decoded(cache: TemplateCache, filter_: str) -> object:
    return decode_search(search_request(dsl=filter_), resolved(BOOKS), cache).template


def kept_bytes(cache: TemplateCache) -> int:
    return sum(len(request) for _, _, request in cache._templates)


def test_a_repeated_search_has_the_same_template_unless_it_is_large() -> None:
    cache = TemplateCache()
    assert decoded(cache, "x > 1") is decoded(cache, "x > 1")
    many_keys = f"id in [{', '.join(map(str, range(30_000)))}]"
    assert decoded(cache, many_keys) is not decoded(cache, many_keys)
    assert kept_bytes(cache) < 1000


def test_different_searches_take_a_bounded_part_of_memory() -> None:
    cache = TemplateCache()
    most = 0
    for number in range(400):
        decoded(cache, f"x > {number}{' ' * 90_000}")
        most = max(most, kept_bytes(cache))
    assert most < 20e6
