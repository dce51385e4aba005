"""The kinds of requests that the serving loop may answer itself, once it knows that they are short.

A kind is what mostly decides how long a request takes. Writes, definitions and everything that orders work
have none: they wait for the log or for a coordinator, in a thread of the pool.

The values are the client's, so only the beginning of each text is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from elanus.proxy.wire.stubs import SERVICE

_NAME_CHARS = 256
_FILTER_CHARS = 16
_SESSION = 3
"""Guarantee timestamps below it are levels, all others are timestamps."""


def kind_of(path: str) -> Callable[[Any], Hashable] | None:
    """Implements `elanus.rpc.serving.loop.KindOf`."""
    return _KINDS.get(path)


def _search(request: Any) -> Hashable:
    return (
        "Search",
        request.collection_name[:_NAME_CHARS],
        request.dsl[:_FILTER_CHARS],
        request.nq.bit_length(),
        request.consistency_level,
        min(request.guarantee_timestamp, _SESSION),
    )


def _hybrid_search(request: Any) -> Hashable:
    return (
        "HybridSearch",
        request.collection_name[:_NAME_CHARS],
        len(request.requests),
        request.consistency_level,
        min(request.guarantee_timestamp, _SESSION),
    )


def _query(request: Any) -> Hashable:
    return (
        "Query",
        request.collection_name[:_NAME_CHARS],
        request.expr[:_FILTER_CHARS],
        request.consistency_level,
        min(request.guarantee_timestamp, _SESSION),
    )


def _by_name(rpc: str) -> Callable[[Any], Hashable]:
    return lambda _: rpc


_KINDS: dict[str, Callable[[Any], Hashable]] = {
    f"/{SERVICE.full_name}/{rpc}": kind
    for rpc, kind in {
        "Search": _search,
        "HybridSearch": _hybrid_search,
        "Query": _query,
        **{rpc: _by_name(rpc) for rpc in ("Connect", "DescribeCollection", "GetVersion", "HasCollection")},
    }.items()
}
