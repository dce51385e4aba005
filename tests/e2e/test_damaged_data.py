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
from harness import Server, until
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from elanus.cli import remote
from elanus.cli.doctor import findings_in
from elanus.server.announce import find

pytestmark = [pytest.mark.e2e]

WITHOUT_SPARK = {"pipeline.enabled": "false"}
ROWS = 200
READ_S = 20.0
REFUSED_WITHIN_S = 10.0
LOST = "the log has lost what is still needed"
SEEDS = 2

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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that was stopped: one collection, its rows in the log."""
    server = Server(tmp_path_factory.mktemp("whole"), WITHOUT_SPARK).start()
    client = server.client()
    client.create_collection("rows", dimension=4, consistency_level="Strong")
    client.insert("rows", [{"id": key, "vector": [float(key)] * 4} for key in range(ROWS)])
    client.delete("rows", ids=[0])
    assert read(client) == [(key, float(key)) for key in range(1, ROWS)]
    server.stop()
    return server.data_dir


def read(client: MilvusClient) -> list[tuple[int, float]]:
    found = client.query("rows", "id >= 0", output_fields=["id", "vector"], limit=2 * ROWS, timeout=10)
    return [(row["id"], float(row["vector"][0])) for row in found]


def files(data_dir: Path) -> list[str]:
    """The files that a start reads: the metadata, the finished log file with the rows, and two small ones."""
    logs = sorted((data_dir / "log").glob("*/*.log"), key=lambda file: file.stat().st_size)
    return ["meta.db", "BACKENDS", "VERSION", str(logs[-1].relative_to(data_dir))]


@pytest.mark.parametrize("damage", [garble, flip, cut, remove])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_wrong_is_served_and_every_refusal_says_why(
    whole: Path, tmp_path: Path, damage: Damage, seed: int
) -> None:
    for number, name in enumerate(files(whole)):
        data_dir = tmp_path / str(number)
        shutil.copytree(whole, data_dir, ignore=shutil.ignore_patterns("run", "scratch"))
        damage(data_dir / name, random.Random(f"{seed} {name}"))
        server = Server(data_dir, WITHOUT_SPARK)
        said = answer(server, server.spawn(), name.split("/")[-1])
        server.close()
        named = name.split("/")[-1] in said or (damage is remove and LOST in said)
        assert said == "right" or named, (name, said)
        assert "Traceback" not in server.output(), name


@pytest.mark.parametrize("lost_files", ["first", "all"])
def test_a_log_that_has_lost_files_concerns_only_who_needs_them(
    whole: Path, tmp_path: Path, lost_files: str
) -> None:
    shutil.copytree(whole, tmp_path / "data", ignore=shutil.ignore_patterns("run", "scratch"))
    with Server(tmp_path / "data", WITHOUT_SPARK) as server:
        client = server.start().client()
        client.create_collection("others", dimension=4, consistency_level="Strong")
        client.insert("others", [{"id": 1, "vector": [1.0] * 4}])
        server.stop()
        lost = server.data_dir / files(server.data_dir)[-1]
        for file in [lost] if lost_files == "first" else lost.parent.iterdir():
            file.unlink()
        client = server.start().client()
        text = until(lambda: refusal(client), REFUSED_WITHIN_S, "reads are refused")
        pchannel, begins = lost.parent.name, min(lost.parent.glob("*.log")).stem.lstrip("0")
        for part in (f"{pchannel}: position ", f"the log begins at {begins})", "restore the log from a copy"):
            assert part in text, text
        began_s = time.monotonic()
        assert refusal(client, timeout=10) == text
        assert time.monotonic() - began_s < 1.0
        client.insert("others", [{"id": 2, "vector": [2.0] * 4}])
        assert len(client.query("others", "id >= 0")) == 2
        [status] = [c for c in server.status()["collections"] if c["name"] == "rows"]
        assert any(f"{pchannel}: position " in reason for reason in status["unreadable_logs"]), status
        assert "log-unreadable" in rules_hit(server)
        client.drop_collection("rows")
        assert "log-unreadable" not in rules_hit(server)
        client.create_collection("rows", dimension=4, consistency_level="Strong")
        client.insert("rows", [{"id": 7, "vector": [7.0] * 4}])
        assert read(client) == [(7, 7.0)]
        server.stop()
        assert "Traceback" not in server.output()


def refusal(client: MilvusClient, timeout: float = 2.0) -> str:
    """Return why a read of the rows is refused; "" if it waits instead until its deadline."""
    try:
        client.query("rows", "id >= 0", timeout=timeout, retry_times=0)
    except MilvusException as error:
        return error.message if "begins at" in error.message else ""
    except grpc.RpcError:
        return ""
    raise AssertionError("rows were answered without their log")


def rules_hit(server: Server) -> set[str]:
    """Return the rules of `elanus doctor` that find something."""
    return {one.rule for one in findings_in(remote.get(server.observe_url + "/status"))}


def answer(server: Server, process: subprocess.Popen[bytes], name: str) -> str:
    """Return "right" if the right rows are served, and otherwise what the operator and the client read.

    A client's error that has the ``name`` of the file, or says that it is gone, is enough.
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
                if name in said or LOST in said:
                    break
            else:
                assert found == [(key, float(key)) for key in range(1, ROWS)]
                return "right"
        time.sleep(0.2)
    return said + server.output()
