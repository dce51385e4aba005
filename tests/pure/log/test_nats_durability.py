"""A server that may lose what it acknowledged is named in the log, once, where its settings can be read."""

from __future__ import annotations

import msgspec
from structlog.testing import capture_logs

from elanus.nats.durability import warn_if_volatile
from elanus.nats.source import NatsSource

VOLATILE = {"jetstream": {"config": {"store_dir": "/x", "sync_interval": 120_000_000_000}}}
DURABLE = {"jetstream": {"config": {"sync_interval": 120_000_000_000, "sync_always": True}}}


async def test_a_server_that_syncs_every_two_minutes_is_named() -> None:
    source = NatsSource.parse("nats://one,[::2]:9/mine?monitor=8222")
    answers = {"http://one:8222/varz": VOLATILE, "http://[::2]:8222/varz": DURABLE}

    async def fetch(url: str) -> bytes:
        return msgspec.json.encode(answers[url])

    with capture_logs() as lines:
        await warn_if_volatile(source, fetch)
    (line,) = lines
    assert line["event"] == "NATS acknowledges writes before they are on stable storage"
    assert (line["log_level"], line["server"], line["sync_interval_s"]) == ("warning", "nats://one:4222", 120)
    assert "sync_interval: always" in line["remedy"]


async def test_monitoring_that_cannot_be_read_is_named() -> None:
    async def away(url: str) -> bytes:
        raise ConnectionRefusedError(url)

    async def page(url: str) -> bytes:
        return b"<html>"

    with capture_logs() as lines:
        await warn_if_volatile(NatsSource.parse("nats://one?monitor=1"), away)
        await warn_if_volatile(NatsSource.parse("nats://one?monitor=1"), page)
    assert [line["event"] for line in lines] == ["NATS monitoring not readable"] * 2


async def test_without_a_port_nothing_is_asked() -> None:
    async def unexpected(url: str) -> bytes:
        raise AssertionError(url)

    with capture_logs() as lines:
        await warn_if_volatile(NatsSource.parse("nats://one"), unexpected)
    assert lines == []
