"""The audit log: refusals and changes always, the rest by a share; never what is in a call."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from elanus.proxy.access.audit import AuditLog, audit_line, is_sampled
from elanus.proxy.access.caller import Caller, FinishedCall
from elanus.proxy.access.permission import ObjectType, Permission

CALLER = Caller(user="ada", origin="ipv4:10.0.0.7:999", client="42")
NOON_S = 1_700_000_000.25


def call(operation: str = "DropCollection", *, refused: bool = False, code: int = 0) -> FinishedCall:
    return FinishedCall(
        operation,
        CALLER,
        Permission("PrivilegeDropCollection", ObjectType.GLOBAL),
        "shop",
        ("books",),
        code,
        0.0123,
        "4bf92f3577b34da6a3ce929d0e0e4736",
        refused,
    )


class Bench:
    def __init__(self, directory: Path, **policy: Any) -> None:
        self.file = directory / "audit" / "audit.log"
        self.lost = 0
        self.log = AuditLog(
            self.file,
            lambda: NOON_S,
            self.lose,
            **{"data_share": 0.0, "file_max_bytes": 1_000_000, "files_max": 3, **policy},
        )

    def lose(self, records: int) -> None:
        self.lost += records

    def closed(self) -> list[dict[str, Any]]:
        self.log.close()
        return read(self.file)


def read(file: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


def test_a_line_names_who_what_and_the_outcome() -> None:
    line = audit_line(call(refused=True, code=65535), NOON_S)
    assert line.endswith(b"\n")
    assert msgspec.json.decode(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "user": "ada",
        "key": "",
        "origin": "ipv4:10.0.0.7:999",
        "operation": "DropCollection",
        "privilege": "PrivilegeDropCollection",
        "object_type": "Global",
        "database": "shop",
        "objects": ["books"],
        "decision": "refused",
        "code": 65535,
        "ms": 12.3,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    }


def test_what_is_no_name_does_not_fill_the_files() -> None:
    """A name is recorded before it is checked, that of a refused sign-in without any."""
    sent = "A" * 1_000_000
    refused = structs.replace(call(refused=True), database=sent, objects=("books", sent))
    line = audit_line(structs.replace(refused, caller=structs.replace(CALLER, user=sent)), NOON_S)
    record = msgspec.json.decode(line)
    clipped = "A" * 255 + "…"
    assert (record["user"], record["database"], record["objects"]) == (clipped, clipped, ["books", clipped])
    assert len(line) < 2_000


@pytest.mark.parametrize(
    ("operation", "sampled"),
    [
        ("Search", True),
        ("Insert", True),
        ("DescribeCollection", True),
        ("ShowCollections", True),
        ("CreateCollection", False),
        ("OperatePrivilegeV2", False),
        ("UpdateCredential", False),
        ("BackupRBAC", False),
        ("Connect", False),
        ("Flush", False),
        ("Import", False),
        ("ConnectorApi.snapshot", False),
        ("Rest.Search", True),
        ("Rest.Get", True),
        ("Rest.Insert", True),
        ("Rest.ListKeys", True),
        ("Rest.CreateKey", False),
        ("Rest.Clone", False),
        ("Console.Status", True),
        ("Console.SignIn", False),
    ],
)
def test_changes_are_always_recorded(operation: str, sampled: bool) -> None:
    assert is_sampled(call(operation)) == sampled
    assert not is_sampled(call(operation, refused=True))


def test_of_data_calls_a_share_is_recorded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, data_share=0.25)
    for _ in range(100):
        bench.log.record(call("Search"))
    bench.log.record(call("Search", refused=True))
    bench.log.record(call("CreateCollection", code=1100))
    records = bench.closed()
    assert len(records) == 27
    assert [r["decision"] for r in records[-2:]] == ["refused", "allowed"]
    assert bench.lost == 0
    assert bench.file.stat().st_mode & 0o777 == 0o600


def test_files_are_put_aside_and_the_oldest_go(tmp_path: Path) -> None:
    size = len(audit_line(call(), NOON_S))
    bench = Bench(tmp_path, file_max_bytes=2 * size)
    for n in range(9):
        bench.log.record(call(f"Drop{n}"[:14].ljust(14, "x")))
    kept = bench.closed()
    assert [len(read(bench.file.with_name(f"audit.log.{n}"))) for n in (1, 2)] == [2, 2]
    assert not bench.file.with_name("audit.log.3").exists()
    assert [r["operation"][:5] for r in kept] == ["Drop8"]


def test_a_line_that_was_cut_off_takes_no_other_with_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.log.record(call("DropCollection"))
    bench.log.record(call("DropIndex"))
    bench.closed()
    bench.file.write_bytes(bench.file.read_bytes()[:-40])
    again = Bench(tmp_path)
    again.log.record(call("DropRole"))
    again.log.close()
    whole, cut, new = again.file.read_bytes().splitlines()
    assert [msgspec.json.decode(line)["operation"] for line in (whole, new)] == ["DropCollection", "DropRole"]
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(cut)
    assert [record["operation"] for record in again.log.latest(9)] == ["DropRole", "DropCollection"]


def test_the_latest_records_are_read_from_the_end_of_the_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.log.latest(3) == []
    for n in range(9):
        bench.log.record(structs.replace(call(), trace=f"{n:02}" * 300))
    bench.closed()
    with bench.file.open("ab") as file:
        file.write(b'{"half')
    assert [one["trace_id"][:2] for one in bench.log.latest(3)] == ["08", "07", "06"]
    assert [one["trace_id"][:2] for one in bench.log.latest(100)] == [f"{n:02}" for n in reversed(range(9))]
    bench.file.unlink()
    assert bench.log.latest(3) == []


def test_a_file_continues_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        bench = Bench(tmp_path)
        bench.log.record(call())
        bench.log.close()
    assert len(read(bench.file)) == 2


def test_a_disk_that_fails_is_counted_and_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    failed = threading.Event()

    def full(batch: list[bytes]) -> None:
        failed.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.log, "_write_batch", full)
    bench.log.record(call())
    assert failed.wait(30)
    monkeypatch.undo()
    bench.log.record(call("CreateRole"))
    assert [r["operation"] for r in bench.closed()] == ["CreateRole"]
    assert bench.lost == 1


def test_a_directory_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file")
    with pytest.raises(OSError, match="audit"):
        Bench(tmp_path)
