"""The settings of query nodes."""

from __future__ import annotations

from pydantic import Field

from elanus.server.settings_base import Section


class QuerynodeSettings(Section):
    """Searches and queries on loaded collections."""

    search_threads: int = Field(default=0, ge=0, le=1024)
    """The maximum number of threads of one search that has many vectors, compares many rows or searches
    many segments. It uses as many as cores are idle when it starts. 0: the number of processors."""
    memory_mb: int = Field(default=0, ge=0, le=16_777_216)
    """The memory that a query node may use for segments. A load that does not fit is refused with the
    sizes, and segments are placed by free memory. 0: no limit."""
    hand_over_s: float = Field(default=20.0, ge=0, le=3600)
    """How long a query node of a cluster that is to stop waits for other nodes of its resource group to take
    over what it serves. It must be given more time to stop: by Kubernetes' terminationGracePeriodSeconds, or
    TimeoutStopSec of systemd. 0: it stops at once, and reads may fail until others have loaded its
    segments."""
    interim_index_mb: int = Field(default=8, ge=0, le=1024)
    """Once this many megabytes of rows have arrived in a growing segment, they get an interim index, if the
    collection is searched at all, and later rows join them. It serves searches until the flushed segment is
    loaded. 0: none do, and searches compare each growing row."""
    recall_cpu_percent: float = Field(default=1.0, ge=0, le=100)
    """The share of one core with which a query node repeats some searches exactly, at the lowest priority, to
    measure their recall (docs/measured-recall.md). 0: nothing is measured."""
    recall_target: float = Field(default=0.9, gt=0, le=1)
    """The recall that searches should have. `elanus doctor` reports searches with less, and the cause."""
