"""The URL of a JetStream log."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.core.errors import InvalidParameter
from elanus.nats.source import NatsSource


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("nats://one:1", NatsSource(("nats://one:1",))),
        ("nats://one,two:2/mine", NatsSource(("nats://one:4222", "nats://two:2"), "mine")),
        (
            "tls://one/a-b_c?credentials=/etc/a%20file&replicas=3",
            NatsSource(("tls://one:4222",), "a-b_c", Path("/etc/a file"), 3),
        ),
        ("nats://one?monitor=8222", NatsSource(("nats://one:4222",), monitor_port=8222)),
    ],
)
def test_a_url_is_parsed_and_written(url: str, source: NatsSource) -> None:
    assert NatsSource.parse(url) == source
    assert NatsSource.parse(source.url) == source


@pytest.mark.parametrize(
    "url",
    [
        *("nats://", "http://one", "nats://one/a.b", "nats://one/a/b", "nats://one?replicas=6"),
        *("nats://one:x", "nats://one:70000", "nats://one,:2", "nats://one:"),
        *("nats://one?x=1", "nats://one?monitor=x", "nats://one?monitor=70000"),
    ],
)
def test_what_is_no_such_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match="expected a URL of the form nats://"):
        NatsSource.parse(url)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidParameter, match="put user and password into a file") as refusal:
        NatsSource.parse("nats://me:secret@one:1")
    assert "secret" not in str(refusal.value)
