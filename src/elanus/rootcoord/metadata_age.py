"""Whether the metadata is older than the log: an older snapshot of etcd was restored, the log was kept.

Every timestamp in the log is below the bound that the oracle had persisted before (`elanus.rootcoord.tso`).
So an entry at or above the bound in the metadata was written under later metadata, which may know collections
and segments that these do not. A cluster that went on would remove what it does not know: the log entries at
once, and with them rows that are nowhere else. So it is checked before anything else is done. It cannot be
checked later: the first bound that is persisted is above every entry.

One pchannel shows it: all that are in use get a time tick every second. A snapshot that is at most
`rootcoord.tso_window_ms` older than the log is not noticed.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from elanus.core.errors import ElanusError, Unavailable
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp, physical_ms
from elanus.log.port import DatedLog, Log

_PATIENCE_S = 3.0
"""How long each pchannel is waited for."""
_log = structlog.get_logger("rootcoord")


async def latest_ms(log: Log) -> int:
    """Return up to which UTC milliseconds the log has entries; 0 if it has none, or belongs to the metadata.

    Raises `Unavailable` when no pchannel answers.
    """
    if not isinstance(log, DatedLog):
        return 0
    pchannels = log.pchannels()
    found = await asyncio.gather(*(_newest(log, pchannel) for pchannel in pchannels))
    known = [ts for ts in found if ts is not None]
    if pchannels and not known:
        raise Unavailable(
            "no channel of the log can be read, so its end cannot be compared with the metadata"
        )
    return max(map(physical_ms, known), default=0)


async def _newest(log: DatedLog, pchannel: str) -> Timestamp | None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await log.newest(pchannel)
    except (ElanusError, TimeoutError) as error:
        _log.warning("end of the log not read", pchannel=pchannel, error=str(error))
        return None


def check_age(bound_ms: int, log_until_ms: int, accepted_until_ms: int) -> None:
    """Raise `Unavailable` for metadata that is older than the log, unless that was accepted.

    ``bound_ms``: the persisted bound of timestamps; 0: the metadata is new. ``log_until_ms``: of `latest_ms`.
    """
    if not NO_TIMESTAMP < bound_ms <= log_until_ms:
        return
    what = (
        f"the metadata is of {_time(bound_ms)} or before, but the log has entries up to {_time(log_until_ms)}"
    )
    if log_until_ms <= accepted_until_ms:
        _log.warning("older metadata accepted", reason=what)
        return
    raise Unavailable(
        f"{what}: an older snapshot of etcd was restored, and what it does not know would be removed from "
        "the log. Stop all processes and restore the newest snapshot. If this is the newest, copy the log "
        f"and the objects, then start with rootcoord.accept_log_until_ms={log_until_ms}: collections and "
        "rows that the metadata does not know are then lost"
    )


def _time(utc_ms: int) -> str:
    return datetime.fromtimestamp(utc_ms / 1000, UTC).isoformat(timespec="milliseconds")
