"""The backends of the query channels, by the scheme of `channels.url`."""

from __future__ import annotations

from elanus.channels import nats_backend
from elanus.channels.port import ChannelsBackend
from elanus.core.backends import Backends

BACKENDS: Backends[ChannelsBackend] = Backends(
    "query channels", "channels.url", {"nats": nats_backend.BACKEND, "tls": nats_backend.BACKEND}
)
