"""The settings of query nodes."""

from __future__ import annotations

from pydantic import Field

from elanus.server.settings_base import Section


class QuerynodeSettings(Section):
    """Searches and queries on loaded collections."""

    search_threads: int = Field(default=0, ge=0, le=1024)
    """Threads that one search may use if it has many vectors, compares many rows or looks into many segments:
    as many as cores are spare when it begins. 0 stands for the number of processors."""
    memory_mb: int = Field(default=0, ge=0, le=16_777_216)
    """Memory that a query node may fill with segments. A load that does not fit is refused with the sum, and
    segments are spread by what is left. 0: no limit is known."""
    interim_index_mb: int = Field(default=8, ge=0, le=1024)
    """Once as many megabytes of a segment's rows have arrived since, they get an interim index, which serves
    searches until the flushed segment is loaded, if the collection is searched at all. 0: none do, and
    searches compare each growing row."""
    recall_cpu_percent: float = Field(default=1.0, ge=0, le=100)
    """The share of one core with which a query node repeats some searches exactly, at the lowest priority, to
    measure their recall (docs/measured-recall.md). 0: nothing is measured."""
    recall_target: float = Field(default=0.9, gt=0, le=1)
    """The recall that searches should have. `elanus doctor` reports those that have less, with the cause."""
