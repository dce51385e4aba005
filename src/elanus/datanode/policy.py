"""When a data node reports, flushes and moves checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

HELD_MAX_BYTES = 64 * 1024
"""How much log an idle vchannel may hold for long: the embedded log does not close smaller files."""
RETRY_PAUSE_S = 0.5
"""The pause before a failed registration or a failed call to datacoord is repeated."""


@dataclass(frozen=True, slots=True)
class DataNodePolicy:
    """``report_ms``: the minimum time between two reports; ``idle_report_ms``: how often to report when
    nothing has moved; ``idle_look_ms``: how often to report an idle vchannel that datacoord does not wait
    for; ``idle_checkpoint_ms``: how far an idle vchannel's checkpoint may fall behind its tick, and
    ``holding_checkpoint_ms``: the same where it keeps `HELD_MAX_BYTES` of log from being trimmed;
    ``sync_age_ms``: how long a write may exist only in the log; ``range_size_max_bytes``: about how much
    of a vchannel's log one job writes, so that a backlog is drained in pieces; ``flush_timeout_s``: how
    long a flush job may take until it is given up."""

    report_ms: int
    idle_report_ms: int
    idle_look_ms: int
    idle_checkpoint_ms: int
    holding_checkpoint_ms: int
    sync_age_ms: int
    range_size_max_bytes: int
    flush_timeout_s: float
