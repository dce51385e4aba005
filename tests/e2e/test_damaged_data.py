"""A start with a damaged file in its directory is refused, or serves what is right, and names the file."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from harness import Server
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException
from unreadable_logs import (
    LOST,
    ROWS,
    WITHOUT_SPARK,
    channel_of,
    create,
    expect_dropped_and_created_again,
    expect_only_rows_refused,
    read,
)

from elanus.log.port import REWOUND_REMEDY
from elanus.server.announce import find

pytestmark = [pytest.mark.e2e]

READ_S = 120.0
SEEDS = 4

Damage = Callable[[Path, random.Random], None]


def garble(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    at = chance.randrange(len(content))
    content[at : at + 64] = chance.randbytes(len(content[at : at + 64]))
    file.write_bytes(content)


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut(file: Path, chance: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])


def remove(file: Path, _: random.Random) -> None:
    file.unlink()


WITHOUT_THE_FILE: dict[Damage, tuple[str, ...]] = {
    garble: (),
    flip: (),
    cut: (REWOUND_REMEDY,),
    remove: (LOST,),
}
"""May be said in place of the file's name: one that is gone has none, and one that is cut off between two
entries looks like an older copy."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that was stopped: one collection, its rows in the log."""
    server = Server(tmp_path_factory.mktemp("whole"), WITHOUT_SPARK).start()
    client = server.client()
    create(client, "rows", range(ROWS))
    client.delete("rows", ids=[0])
    assert read(client) == [(key, float(key)) for key in range(1, ROWS)]
    server.stop()
    return server.data_dir


def files(data_dir: Path) -> list[str]:
    """The files that a start reads: the metadata, the finished log file with the rows, and two small ones."""
    logs = sorted((data_dir / "log").glob("*/*.log"), key=lambda file: file.stat().st_size)
    return ["meta.db", "BACKENDS", "VERSION", str(logs[-1].relative_to(data_dir))]


@pytest.mark.parametrize(
    ("damage", "seed"),
    [
        pytest.param(damage, seed, marks=() if seed == 0 and damage in (flip, remove) else pytest.mark.long)
        for damage in WITHOUT_THE_FILE
        for seed in range(SEEDS)
    ],
)
def test_nothing_wrong_is_served_and_every_refusal_says_why(
    whole: Path, tmp_path: Path, damage: Damage, seed: int
) -> None:
    for number, name in enumerate(files(whole)):
        data_dir = tmp_path / str(number)
        shutil.copytree(whole, data_dir, ignore=shutil.ignore_patterns("run", "scratch"))
        damage(data_dir / name, random.Random(f"{seed} {number}"))
        server = Server(data_dir, WITHOUT_SPARK)
        said = answer(server, server.spawn(), name.split("/")[-1])
        server.close()
        named = name.split("/")[-1] in said or any(text in said for text in WITHOUT_THE_FILE[damage])
        assert said == "right" or named, (name, said)
        assert "Traceback" not in server.output(), name


@pytest.mark.parametrize("lost_files", ["first", "all"])
def test_a_log_that_has_lost_files_concerns_only_who_needs_them(
    whole: Path, tmp_path: Path, lost_files: str
) -> None:
    shutil.copytree(whole, tmp_path / "data", ignore=shutil.ignore_patterns("run", "scratch"))
    with Server(tmp_path / "data", WITHOUT_SPARK) as server:
        client = server.start().client()
        create(client, "others", range(1))
        server.stop()
        lost = server.data_dir / files(server.data_dir)[-1]
        for file in [lost] if lost_files == "first" else lost.parent.iterdir():
            file.unlink()
        client = server.start().client()
        pchannel, begins = lost.parent.name, min(lost.parent.glob("*.log")).stem.lstrip("0")
        parts = (f"the log begins at {begins})", LOST, "restore the log from a copy")
        expect_only_rows_refused(server, client, pchannel, *parts)
        expect_dropped_and_created_again(server, client)


def test_an_older_copy_of_the_log_is_refused_to_readers_that_need_more(tmp_path: Path) -> None:
    """Both collections are in one log, of which the copy has all that is needed of one of them."""
    settings = {**WITHOUT_SPARK, "rootcoord.dml_channel_num": "1"}
    with Server(tmp_path / "data", settings) as server:
        create(server.start().client(), "others", range(5))
        server.stop()
        log, copy = server.data_dir / "log", tmp_path / "copy"
        shutil.copytree(log, copy)
        client = server.start().client()
        create(client, "rows", range(ROWS))
        assert len(read(client)) == ROWS
        pchannel = channel_of(server, "rows")
        server.stop()
        shutil.rmtree(log)
        shutil.copytree(copy, log)
        client = server.start().client()
        parts = ("is needed, but the log ends at ", "an older copy was put in its place", REWOUND_REMEDY)
        expect_only_rows_refused(server, client, pchannel, *parts)
        expect_dropped_and_created_again(server, client)


def answer(server: Server, process: subprocess.Popen[bytes], name: str) -> str:
    """Return "right" if the right rows are served, and otherwise what the operator and the client read.

    A client's error that has the ``name`` of the file, or says what is missing of the log, is enough.
    """
    deadline_s = time.monotonic() + READ_S
    said = ""
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            return server.output()
        announced = find(server.data_dir)
        if announced is not None and announced.pid == process.pid:
            try:
                found = read(MilvusClient(f"http://{announced.address}"))
            except (MilvusException, grpc.RpcError) as error:
                said = str(error)
                if name in said or LOST in said or REWOUND_REMEDY in said:
                    break
            else:
                assert found == [(key, float(key)) for key in range(1, ROWS)]
                return "right"
        time.sleep(0.2)
    return said + server.output()
