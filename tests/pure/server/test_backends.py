"""A data directory belongs to the log and the store it was first used with."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from elanus.core.messages import MsgKind
from elanus.core.timestamps import Timestamp
from elanus.log.port import START, EntryHeader, NewEntry
from elanus.server.backends import bind, log_url, open_follower, open_log, store_url
from elanus.server.data_dir import paths_of
from elanus.server.settings import Settings
from elanus.server.settings_services import LogSettings, StorageSettings
from elanus.server.startup import CannotStart

NATS = "nats://one:4222/mine"
S3 = "s3://bucket/mine?endpoint=http://one:1"


def settings(log: str = "", storage: str = "") -> Settings:
    return Settings(log=LogSettings(url=log), storage=StorageSettings(url=storage))


def test_without_urls_all_is_in_the_data_directory(tmp_path: Path) -> None:
    paths = paths_of(tmp_path)
    assert log_url(settings(), paths) == (tmp_path / "log").as_uri()
    assert store_url(settings(), paths) == (tmp_path / "files").as_uri()
    assert log_url(settings(NATS), paths) == NATS
    assert store_url(settings("", S3), paths) == S3


def test_what_it_belongs_to_survives_a_crash_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    bind(settings(NATS, S3), paths_of(tmp_path))
    assert synced == [str(tmp_path / "BACKENDS.new"), str(tmp_path)]


def test_one_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "BACKENDS.new").mkdir()
    with pytest.raises(CannotStart, match="BACKENDS cannot be written: Is a directory"):
        bind(settings(NATS, S3), paths_of(tmp_path))


def test_hosts_and_parameters_may_change(tmp_path: Path) -> None:
    bind(settings(NATS, S3), paths_of(tmp_path))
    bind(settings("nats://two:1,three:2/mine?replicas=3", "s3://bucket/mine/"), paths_of(tmp_path))


@pytest.mark.parametrize(
    ("log", "storage", "named"),
    [
        ("", S3, "log.url names none"),
        ("nats://one:4222/other", S3, "log.url names nats:/other"),
        (NATS, "", "storage.url names none"),
        (NATS, "s3://other/mine", "storage.url names s3:other/mine"),
        (NATS, "s3://bucket/other", "storage.url names s3:bucket/other"),
    ],
)
def test_another_log_or_store_is_refused(tmp_path: Path, log: str, storage: str, named: str) -> None:
    bind(settings(NATS, S3), paths_of(tmp_path))
    with pytest.raises(CannotStart, match=named):
        bind(settings(log, storage), paths_of(tmp_path))


def test_a_directory_from_before_there_was_a_choice_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "meta.db").touch()
    with pytest.raises(CannotStart, match="belongs to the log within it"):
        bind(settings(NATS), paths_of(tmp_path))
    bind(settings(), paths_of(tmp_path))


@pytest.mark.parametrize("url", ["kafka://one", "nats://me:pw@one/mine"])
def test_a_log_url_is_checked_before_anything_starts(url: str) -> None:
    with pytest.raises(ValidationError, match=r"log|url"):
        settings(log=url)


@pytest.mark.parametrize("url", ["/files", "s3://me:pw@bucket/x"])
def test_a_storage_url_is_checked_before_anything_starts(url: str) -> None:
    with pytest.raises(ValidationError, match=r"storage|url"):
        settings(storage=url)


def test_a_log_in_files_may_be_outside_the_data_directory(tmp_path: Path) -> None:
    elsewhere = tmp_path / "fast disk" / "log"
    paths = paths_of(tmp_path / "data")

    async def use() -> None:
        log = await open_log(settings(elsewhere.as_uri()), paths)
        await log.append("dml_0", [NewEntry(EntryHeader(MsgKind.TIME_TICK, Timestamp(7)))])
        follower = await open_follower(settings(elsewhere.as_uri()), paths, poll_ms=1)
        (entry,) = await follower.open_reader("dml_0", START).read()
        assert entry.header.ts == 7
        await follower.close()
        await log.close()

    asyncio.run(use())
    assert (elsewhere / "dml_0").is_dir()
    assert not paths.log.exists()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b'{"log": ""}', b'{"log": "", "storagf": ""}'])
def test_a_damaged_binding_is_named(tmp_path: Path, content: bytes) -> None:
    settings, paths = Settings(), paths_of(tmp_path)
    bind(settings, paths)
    (tmp_path / "BACKENDS").write_bytes(content)
    with pytest.raises(CannotStart, match=r"BACKENDS is damaged: restore it"):
        bind(settings, paths)
