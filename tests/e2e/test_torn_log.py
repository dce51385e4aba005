"""A torn end of the log, as a crash leaves it, is cut off; any other damage is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_load import Load, create
from harness import Server, until
from pymilvus.exceptions import MilvusException

from elanus.log.layout import list_files
from elanus.log.reading import OpenFile, walk_headers

pytestmark = [pytest.mark.e2e, pytest.mark.kills]

COLLECTIONS = {"one_shard": 1, "two_shards": 2}
REQUESTS = 40
TICK_DEADLINE_S = 10.0
DAMAGE = b"damaged since"

Damage = Callable[[Path, random.Random], None]


def truncate(file: Path, chance: random.Random) -> None:
    """The last record was not written to its end."""
    with file.open("rb+") as log:
        log.truncate(file.stat().st_size - chance.randint(1, 60))


def garble(file: Path, chance: random.Random) -> None:
    """The last record's pages did not all reach the disk."""
    with file.open("rb+") as log:
        log.seek(-chance.randint(1, 60), 2)
        log.write(bytes([chance.randrange(256)]))


def append_garbage(file: Path, chance: random.Random) -> None:
    """A record began to be written."""
    with file.open("ab") as log:
        log.write(chance.randbytes(chance.randint(1, 5000)))


def append_half_a_record(file: Path, chance: random.Random) -> None:
    """A record began to be written, and what there is of it looks right."""
    end = file.read_bytes()[-chance.randint(100, 4000) :]
    with file.open("ab") as log:
        log.write(end)


def newest_files(server: Server) -> list[Path]:
    """The file that is being written, of each pchannel."""
    return [max(d.glob("*.log")) for d in (server.data_dir / "log").iterdir() if d.is_dir()]


def inside_a_payload(file: Path) -> int:
    """A byte in the payload of the middle record. Damage to a header has the start refused."""
    span = next(span for span in list_files(file.parent) if span.path == file)
    frames = walk_headers(OpenFile(span), span.first, span.end)
    payloads = [
        frame.position + frame.header_bytes - span.base
        for frame in frames
        if frame.payload_bytes > len(DAMAGE)
    ]
    return payloads[len(payloads) // 2]


def wait_for_ticks(server: Server) -> None:
    """Until something else was written after the last acknowledged write, everywhere."""
    before = {file: file.stat().st_size for file in newest_files(server)}
    for file, size in before.items():
        until(lambda file=file, size=size: file.stat().st_size > size, TICK_DEADLINE_S, f"{file} grows")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(truncate, marks=pytest.mark.long),
        garble,
        pytest.param(append_garbage, marks=pytest.mark.long),
        append_half_a_record,
    ],
)
def test_a_torn_tail_is_cut_off(damage: Damage, new_server: Callable[..., Server]) -> None:
    chance = random.Random(3)
    server = new_server({"pipeline.enabled": "false"}).start()
    load = Load(5, COLLECTIONS)
    for name, shards in COLLECTIONS.items():
        create(server.client(), name, shards=shards)
    for _ in range(2):
        load.begin(server.client(), until_error=False)
        load.wait_for(REQUESTS)
        load.end()
        wait_for_ticks(server)
        server.kill()
        files = newest_files(server)
        assert len(files) >= 3
        for file in files:
            damage(file, chance)
        load.check(server.start().client())


def test_damage_to_acknowledged_rows_is_never_answered_with_a_part(new_server: Callable[..., Server]) -> None:
    server = new_server({"pipeline.enabled": "false", "proxy.read_timeout_s": 3}).start()
    load = Load(6, {"one_shard": 1}, writers_each=1)
    create(server.client(), "one_shard", shards=1)
    load.begin(server.client(), until_error=False)
    load.wait_for(REQUESTS)
    load.end()
    server.kill()
    file = max(newest_files(server), key=lambda file: file.stat().st_size)
    intact = file.read_bytes()
    with file.open("rb+") as log:
        log.seek(inside_a_payload(file))
        log.write(DAMAGE)
    client = server.start().client()
    until(lambda: "damaged" in server.output(), TICK_DEADLINE_S, "the damage is reported")
    assert str(file) in server.output()
    with pytest.raises(MilvusException):
        client.query("one_shard", filter="key >= 0", consistency_level="Strong")
    create(client, "another", shards=1)
    server.stop()
    with file.open("rb+") as log:
        log.write(intact)
    load.check(server.start().client())
