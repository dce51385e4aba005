"""Failures of the local object store alone: full disks, other file systems, interrupted writes."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from elanus.core.errors import DiskFull, InvalidParameter
from elanus.storage.local import LocalStore, disk_full_reported
from elanus.storage.objects import open_store
from elanus.storage.port import ObjectExists, StorageFailed


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "files")


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    source = tmp_path / "source"
    source.write_bytes(b"data")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DiskFull, match="a/one"):
        store.put("a/one", b"data")
    with pytest.raises(DiskFull, match="a/two"):
        store.put_file("a/two", source)
    assert files_below(tmp_path / "files") == []


def test_other_disk_errors_are_faults_of_the_store(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageFailed, match=r"one: .*input/output"):
        store.put("one", b"data")
    assert list(store.list("")) == []


def test_content_is_durable_before_the_name_exists_and_the_name_before_put_returns(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "files" / "a" / "one"
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), target.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    store.put("a/one", b"data")
    content = [named for path, named in synced if ".staging" in path]
    assert content == [False]
    assert synced[-1] == (str(target.parent), True)
    assert (str(target.parent.parent), False) in synced, "the new directory's own name must be durable too"


def test_a_file_from_another_file_system_is_copied(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"data")
    real = os.link

    def link(start: Path, target: Path) -> None:
        if start == source:
            raise OSError(errno.EXDEV, "cross-device link")
        real(start, target)

    monkeypatch.setattr(os, "link", link)
    store.put_file("a/one", source)
    assert store.get("a/one").to_pybytes() == b"data"
    assert files_below(tmp_path) == [tmp_path / "files" / "a" / "one"]


def test_a_lost_race_for_a_file_keeps_the_source(store: LocalStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"mine")
    store.put("one", b"theirs")
    with pytest.raises(ObjectExists):
        store.put_file("one", source)
    assert source.read_bytes() == b"mine"


def test_interrupted_writes_are_invisible_and_can_be_discarded(store: LocalStore, tmp_path: Path) -> None:
    store.put("kept", b"x")
    (tmp_path / "files" / ".staging" / "left-by-a-crash").write_bytes(b"half")
    assert [info.path for info in store.list("")] == ["kept"]
    assert store.discard_staged() == 1
    assert store.discard_staged() == 0
    assert store.get("kept").to_pybytes() == b"x"


def test_what_others_are_writing_is_not_discarded(store: LocalStore, tmp_path: Path) -> None:
    store.put("kept", b"x")
    staging = tmp_path / "files" / ".staging"
    for name, age_s in (("abandoned", 4000), ("being-written", 10)):
        (staging / name).write_bytes(b"half")
        then_s = time.time() - age_s
        os.utime(staging / name, (then_s, then_s))
    assert store.discard_staged(3600) == 1
    assert [file.name for file in staging.iterdir()] == ["being-written"]


def test_deleting_takes_empty_directories_along_while_others_write(store: LocalStore, tmp_path: Path) -> None:
    def churn(number: int) -> None:
        for turn in range(50):
            path = f"a/b/c/{number}-{turn}"
            store.put(path, b"x")
            store.delete(path)

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in (tmp_path / "files").iterdir()] == [".staging"]


def test_opening_writes_nothing(tmp_path: Path) -> None:
    opened = open_store((tmp_path / "a b").as_uri())
    assert opened.url == (tmp_path / "a b").as_uri()
    assert list(opened.list("")) == []
    assert not (tmp_path / "a b").exists()


@pytest.mark.parametrize("url", ["/plain/path", "file://host/path", "gs://bucket", "file:relative", ""])
def test_urls_of_other_forms_are_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match="object store"):
        open_store(url)


def test_disk_full_is_recognized_by_its_number() -> None:
    with pytest.raises(DiskFull, match="the-file"), disk_full_reported("the-file"):
        raise OSError(errno.ENOSPC, "no space")
