"""The backends ``nats`` and ``tls``: query channels on NATS (their URLs: `elanus.nats.source`)."""

from __future__ import annotations

from elanus.channels.port import ChannelsBackend, OpenChannels
from elanus.nats.source import FORM, NatsSource


async def _open(url: str) -> OpenChannels:
    from elanus.channels.nats import NatsChannels

    return await NatsChannels.open(NatsSource.parse(url))


BACKEND = ChannelsBackend(form=FORM, check=NatsSource.parse, open=_open)
