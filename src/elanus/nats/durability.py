"""The durability of acknowledged writes, read from the monitoring of the NATS servers, which alone shows it.

By default JetStream brings messages to stable storage every two minutes. Clients cannot see or set that: it
is ``sync_interval`` in the configuration of each server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import structlog

from elanus.nats.source import NatsSource

Fetch = Callable[[str], Awaitable[bytes]]
_TIMEOUT_S = 2.0
_NS_PER_S = 1e9
_log = structlog.get_logger("log")


async def _fetch(url: str) -> bytes:
    """Raises `OSError`."""

    def get() -> bytes:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read())

    return await asyncio.to_thread(get)


async def warn_if_volatile(source: NatsSource, fetch: Fetch = _fetch) -> None:
    """Log a warning for each server that acknowledges writes which it may lose with its machine.

    Does nothing without ``monitor`` in the URL. A server whose monitoring does not answer is named in the log
    too.
    """
    if source.monitor_port:
        await asyncio.gather(*(_check(server, source, fetch) for server in source.servers))


async def _check(server: str, source: NatsSource, fetch: Fetch) -> None:
    host = urlsplit(server).hostname or ""
    url = f"http://{f'[{host}]' if ':' in host else host}:{source.monitor_port}/varz"
    try:
        settings = msgspec.json.decode(await fetch(url), type=_Varz).jetstream.config
    except (OSError, ValueError) as error:
        _log.warning("NATS monitoring not readable", url=url, error=str(error))
        return
    if not settings.sync_always:
        _log.warning(
            "NATS acknowledges writes before they are on stable storage",
            server=server,
            sync_interval_s=settings.sync_interval / _NS_PER_S,
            replicas=source.replicas,
            remedy="set sync_interval: always in the server's jetstream block, or keep replicas on machines "
            "that do not lose power together",
        )


class _Config(msgspec.Struct):
    sync_always: bool = False
    sync_interval: int = 0


class _JetStream(msgspec.Struct):
    config: _Config


class _Varz(msgspec.Struct):
    jetstream: _JetStream
