"""The results, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Reads(msgspec.Struct, frozen=True):
    """Single searches with so many query nodes, taken in turns with the standalone server's.

    ``rows_per_node``: rows of sealed segments that each node serves. Milliseconds: medians.
    """

    query_nodes: int
    rows: int
    segments: int
    rows_per_node: Sequence[int]
    bounded_ms: float
    bounded_alone_ms: float
    strong_ms: float
    strong_alone_ms: float


class Cost(msgspec.Struct, frozen=True):
    """Processor time of one Bounded search in milliseconds: by process of the cluster, the client's as well,
    and of a standalone server."""

    query_nodes: int
    cpu_ms: Mapping[str, float]
    alone_ms: float


class Balance(msgspec.Struct, frozen=True):
    """How many segments each node serves: as a load spread them, and after a node joined by itself."""

    segments: int
    loaded: Sequence[int]
    joined: Sequence[int]
    joined_s: float


class Idle(msgspec.Struct, frozen=True):
    """A cluster at rest. ``cpu``: share of a processor, by process. ``ticks_per_s``: written to the log."""

    collections: int
    shards: int
    tick_interval_ms: int
    cpu: Mapping[str, float]
    etcd_writes_per_s: float
    ticks_per_s: float


class Scaling(msgspec.Struct, frozen=True):
    """``remark``: under which circumstances, where they were not the same for all of it."""

    version: str
    machine: str
    dim: int
    reads: Sequence[Reads]
    costs: Sequence[Cost]
    balance: Balance
    idle: Sequence[Idle]
    remark: str = ""
