"""A log on NATS that lacks what is still needed: it is noticed, and refused as with the embedded log."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Server, until
from nats_streams import last_of, purge, remove, stopped
from pymilvus.exceptions import MilvusException
from unreadable_logs import (
    LOST,
    REFUSED_WITHIN_S,
    ROWS,
    WITHOUT_SPARK,
    channel_of,
    create,
    expect_dropped_and_created_again,
    expect_only_rows_refused,
    read,
    rules_hit,
)

from elanus.devcluster.nats import Nats
from elanus.log.port import REWOUND_REMEDY

pytestmark = [pytest.mark.e2e, pytest.mark.services]

NewServer = Callable[..., Server]


@pytest.mark.parametrize("lose", [purge, remove])
def test_a_stream_that_has_lost_its_messages_concerns_only_who_needs_them(
    new_server: NewServer, nats_server: Nats, lose: Callable[[Nats, str, str], None]
) -> None:
    prefix = uuid.uuid4().hex
    server = new_server({**WITHOUT_SPARK, "log.url": f"{nats_server.url}/{prefix}"}).start()
    client = server.client()
    create(client, "rows", range(ROWS))
    create(client, "others", range(1))
    assert len(read(client)) == ROWS
    pchannel = channel_of(server, "rows")
    assert pchannel != channel_of(server, "others")
    server.stop()
    lose(nats_server, prefix, pchannel)
    client = server.start().client()
    parts = (" is trimmed; the log begins at ", LOST, "restore the log from a copy")
    expect_only_rows_refused(server, client, pchannel, *parts)
    expect_dropped_and_created_again(server, client)


def test_a_stream_from_an_older_copy_is_not_written_to(new_server: NewServer, tmp_path: Path) -> None:
    """The copy was made before the collection ``rows``, when its channel already had another one."""
    nats, prefix, copy = Nats(tmp_path / "nats"), uuid.uuid4().hex, tmp_path / "copy"
    nats.start()
    try:
        settings = {**WITHOUT_SPARK, "rootcoord.dml_channel_num": "2", "log.url": f"{nats.url}/{prefix}"}
        server = new_server(settings).start()
        for name in ("first", "others"):
            create(server.client(), name, range(5))
        server.stop()
        with stopped(nats):
            shutil.copytree(tmp_path / "nats" / "nats", copy)
        client = server.start().client()
        create(client, "rows", range(ROWS))
        assert len(read(client)) == ROWS
        pchannel = channel_of(server, "rows")
        assert (channel_of(server, "first"), channel_of(server, "others") == pchannel) == (pchannel, False)
        server.stop()
        with stopped(nats):
            shutil.rmtree(tmp_path / "nats" / "nats")
            shutil.copytree(copy, tmp_path / "nats" / "nats")
        end = last_of(nats, prefix, pchannel) + 1
        client = server.start().client()
        parts = (
            f"is needed, but the log ends at {end}",
            "an older copy was put in its place",
            REWOUND_REMEDY,
        )
        expect_only_rows_refused(server, client, pchannel, *parts)
        for name in ("first", "rows"):
            with pytest.raises(MilvusException, match=f"nothing is written to {pchannel}: position "):
                client.insert(name, [{"id": 9, "vector": [1.0] * 4}], timeout=10)
        assert last_of(nats, prefix, pchannel) == end - 1
        assert "channel-rewound" in rules_hit(server)
        [status] = [c for c in server.status()["channels"] if c["pchannel"] == pchannel]
        assert REWOUND_REMEDY in status["refusal"], status
        remove(nats, prefix, pchannel)
        until(lambda: "channel-rewound" not in rules_hit(server), REFUSED_WITHIN_S, "the channel is used")
        client.drop_collection("first")
        expect_dropped_and_created_again(server, client)
    finally:
        nats.stop()
