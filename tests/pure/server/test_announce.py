"""The file by which tools find a running server."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from elanus.server.announce import FILE_NAME, Announcement, announce, find, withdraw
from elanus.server.startup import CannotStart

HERE = Announcement(version="1", pid=7, address="127.0.0.1:1", observe_url="http://127.0.0.1:2")


def test_what_is_announced_is_found_until_it_is_withdrawn(tmp_path: Path) -> None:
    announce(tmp_path, HERE)
    assert find(tmp_path) == HERE
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]
    withdraw(tmp_path)
    assert find(tmp_path) is None
    withdraw(tmp_path)


def test_a_server_that_cannot_announce_itself_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CannotStart, match=r"server\.json cannot be written: No space left on device"):
        announce(tmp_path, HERE)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_server_announces_none(tmp_path: Path) -> None:
    assert find(tmp_path / "nowhere") is None


def test_a_file_that_is_not_an_announcement_is_none(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"pid": "seven"}')
    assert find(tmp_path) is None
