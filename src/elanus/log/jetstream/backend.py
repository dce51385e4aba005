"""The backends ``nats`` and ``tls``: a log on NATS JetStream (their URLs: `elanus.nats.source`)."""

from __future__ import annotations

from functools import partial

from elanus.core.backends import identity_of_path
from elanus.log.port import Log, LogBackend, LogFollower, LogOptions, RangeReader
from elanus.nats.source import FORM, NatsSource


async def _open(url: str, options: LogOptions) -> Log:
    from elanus.log.jetstream.log import NatsLog
    from elanus.nats.durability import warn_if_volatile

    source = NatsSource.parse(url)
    log = await NatsLog.open(source, append_timeout_s=options.append_timeout_s, held=options.held)
    await warn_if_volatile(source)
    return log


async def _follow(url: str, poll_ms: float) -> LogFollower:
    from elanus.log.jetstream.log import NatsLog

    del poll_ms  # the servers push new entries
    return await NatsLog.open(NatsSource.parse(url), name="elanus pipeline")


def _range_reader(url: str) -> RangeReader:
    from elanus.log.jetstream.log import read_range

    return partial(read_range, NatsSource.parse(url))


BACKEND = LogBackend(
    form=FORM,
    check=NatsSource.parse,
    identity=identity_of_path,
    open=_open,
    follow=_follow,
    range_reader=_range_reader,
)
