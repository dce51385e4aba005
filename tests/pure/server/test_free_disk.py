"""Writes are refused before any disk is full that this machine's data is on."""

from __future__ import annotations

from pathlib import Path

from elanus.server.free_disk import FreeDisk, directories_of


def test_the_directories_of_log_and_objects_are_watched_too(tmp_path: Path) -> None:
    urls = ["file:///logs/a%20b", "s3://bucket/x", "nats://one:4222/mine", "file:///objects"]
    assert directories_of(urls) == (Path("/logs/a b"), Path("/objects"))


def test_the_fullest_disk_counts_and_is_looked_at_once_a_second() -> None:
    free = {Path("/data"): 100, Path("/objects"): 7}
    looks: list[Path] = []
    now_s = [0.0]

    def look(directory: Path) -> int:
        looks.append(directory)
        return free[directory]

    disk = FreeDisk(free, lambda: now_s[0], look)
    assert disk.free_bytes() == disk.free_bytes() == 7
    assert len(looks) == 2
    free[Path("/objects")], now_s[0] = 500, 1.0
    assert disk.free_bytes() == 100


def test_a_directory_that_does_not_exist_yet_is_looked_at_where_it_will_be(tmp_path: Path) -> None:
    assert FreeDisk([tmp_path / "a" / "b"]).free_bytes() > 0


def test_without_directories_there_is_no_limit() -> None:
    assert FreeDisk(()).free_bytes() > 1 << 60
