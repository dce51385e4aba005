"""Rules about channels: ticks, owners, the size of the log, and entries that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from elanus.log.port import REWOUND
from elanus.server.doctor.finding import Finding, critical, mb, some, warning
from elanus.server.doctor.resources import DISK_FULL_BYTES
from elanus.server.doctor.roles import SETTLED_S
from elanus.server.status import Status

LAG_MS = 5000.0
"""Five times the interval of ticks on an idle channel."""
AHEAD_MS = 2000.0
LOG_PER_GROWING = 4
"""The log may hold this many times the hard limit of growing data before it counts as held."""
LOG_BYTES_MAX = 8 << 30
"""The same where the limit is not known."""


def tick_held_back(status: Status) -> Iterator[Finding]:
    """The last time tick of a channel is more than five seconds old: reads that need newer rows wait."""
    late = sorted(
        (c for c in status.channels if c.lag_ms > LAG_MS and not c.refusal), key=lambda c: -c.lag_ms
    )
    if not late:
        return
    every = len(late) == len(status.channels)
    holders = {c.held_by for c in late}
    resources = status.resources
    if resources and resources.disk_free_bytes is not None and resources.disk_free_bytes < DISK_FULL_BYTES:
        yield critical(
            "no time tick can be written: the disk is full",
            some([f"{c.pchannel} {c.lag_ms / 1000:.1f} s" for c in late]),
            "free or add space: ticks and writes go on by themselves, and nothing needs a restart",
        )
        return
    proxy = f"proxy {holders.pop()}" if len(holders) == 1 and 0 not in holders else ""
    yield critical(
        "time ticks are held back"
        + (" on every channel" if every else "")
        + (f" by {proxy}" if proxy else ""),
        some([f"{c.pchannel} {c.lag_ms / 1000:.1f} s" for c in late]),
        "a write that never ends, or a proxy that does not report, holds them: "
        + (
            "see that rootcoord and all proxies serve, that the metadata takes changes (else rootcoord's log "
            "has `timestamp bound not persisted`, with the reason), and "
            if every
            else ""
        )
        + (f"restart {proxy}" if proxy else "restart the proxies one by one")
        + "; a dead proxy is left out after session.ttl_s",
    )


def channel_rewound(status: Status) -> Iterator[Finding]:
    """The log of a channel was put back to an older copy: nothing is written to it."""
    for channel in status.channels:
        if channel.refusal.startswith(REWOUND):
            yield critical(
                f"{channel.pchannel} takes no writes and no time ticks",
                channel.refusal,
                "restore a copy of the channel's log that reaches this position, or remove the log and drop "
                "the collections that need it (docs/production.md)",
            )


def channel_unavailable(status: Status) -> Iterator[Finding]:
    """The log of a channel takes no entry at the moment: its servers are unavailable, or a disk is full."""
    away = [c for c in status.channels if c.refusal and not c.refusal.startswith(REWOUND)]
    if away:
        yield critical(
            "channels take no time ticks",
            some([f"{c.pchannel}: {c.refusal}" for c in away]),
            "see that the servers of these channels' logs run and have space; the channels are used again by "
            "themselves, and the others go on meanwhile",
        )


def clock_behind(status: Status) -> Iterator[Finding]:
    """Ticks are ahead of the clock by more than two seconds: clocks differ, or one was set back."""
    ahead = [c for c in status.channels if c.lag_ms < -AHEAD_MS]
    if ahead:
        worst = min(ahead, key=lambda c: c.lag_ms)
        yield warning(
            "this machine's clock is behind the timestamps that were issued",
            f"{worst.pchannel} is {-worst.lag_ms / 1000:.1f} s ahead of the clock",
            "synchronize the clocks of all machines (chrony, ntpd); timestamps stay correct meanwhile",
        )


def channel_without_owner(status: Status) -> Iterator[Finding]:
    """No data node owns the vchannels of a channel, so their rows are not flushed."""
    unowned = [c.pchannel for c in status.channels if c.vchannels and not c.data_node]
    if unowned and status.uptime_s > SETTLED_S:
        yield critical(
            "channels have no data node, so their rows are not flushed",
            some(unowned),
            "in a cluster, start a data node (`elanus run datanode`); otherwise look for `data node` in the "
            "server's log: it registers soon after the start",
        )


def entries_in_quarantine(status: Status) -> Iterator[Finding]:
    """Readers skip log entries that do not fit their collection's schema: these rows are not served."""
    hit = [c for c in status.channels if c.quarantined]
    if hit:
        yield critical(
            "log entries are in quarantine: their rows are neither served nor flushed",
            some([f"{c.pchannel} {c.quarantined}" for c in hit]),
            "look for `log entry quarantined` in datacoord's log, and insert these rows again",
        )


def log_held(status: Status) -> Iterator[Finding]:
    """The log is several times larger than the growing data may be: flushes or a query node lag behind."""
    total_bytes = sum(c.log_bytes for c in status.channels)
    resources = status.resources
    hard_bytes = resources.growing_hard_bytes if resources else 0
    limit_bytes = LOG_PER_GROWING * hard_bytes or LOG_BYTES_MAX
    if total_bytes > limit_bytes:
        largest = sorted(status.channels, key=lambda c: -c.log_bytes)
        yield warning(
            "the log is not trimmed",
            f"{mb(total_bytes)} in all; " + some([f"{c.pchannel} {mb(c.log_bytes)}" for c in largest]),
            "see whether flush jobs fail, and whether a query node lags: the log is kept for it for "
            "datacoord.log_hold_s",
        )


RULES = (
    tick_held_back,
    channel_rewound,
    channel_unavailable,
    clock_behind,
    channel_without_owner,
    entries_in_quarantine,
    log_held,
)
