"""A day's page says what was seen, and its yardstick measures the whole data directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.pipeline.day import PARTS, Day, Sample, disk_use
from benchmarks.report.day_page import render_day
from benchmarks.report.day_plot import draw_day


def a_day(*sizes_bytes: int) -> Day:
    samples = [Sample(0.0, (0,) * len(PARTS)), Sample(5.0, sizes_bytes)]
    return Day(10_000_000, samples, [(1.0, "insert"), (2.0, "flush")], "job  kind\n1    flush\n")


def test_a_day_is_judged_by_what_lies_on_disk_at_its_end() -> None:
    clean, dirty = a_day(1_000_000, 10_000_000, 500_000, 0), a_day(1_000_000, 10_000_000, 500_000, 1_000_000)
    assert clean.is_clean
    assert not dirty.is_clean
    assert "**+15%** (target at most +15%: met)" in render_day(clean, "day.svg")
    assert "**12.5 MB** (log 1.0, files 10.0, metadata 0.5, else 1.0)" in render_day(dirty, "day.svg")
    assert "**+25%** (target at most +15%: missed)" in render_day(dirty, "day.svg")


def test_the_page_shows_picture_and_ledger() -> None:
    page = render_day(a_day(1, 1, 1, 1), "day.svg")
    assert "(day.svg)" in page
    assert "```\njob  kind\n1    flush\n```" in page


@pytest.mark.slow
def test_the_picture_names_parts_and_steps(tmp_path: Path) -> None:
    draw_day(a_day(1, 2, 3, 4), tmp_path / "day.svg")
    drawn = (tmp_path / "day.svg").read_text()
    assert all(f">{word}<" in drawn for word in (*PARTS, "insert", "flush"))


def test_every_file_of_the_data_directory_is_counted_once(tmp_path: Path) -> None:
    for name in ("log/dml_0/0.log", "files/insert_log/1", "meta.db", "meta.db-wal", "scratch/spark/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / name).open("wb") as file:
            file.write(b"x" * 8192)
            os.fsync(file.fileno())
    one = (tmp_path / "meta.db").stat().st_blocks * 512
    assert one > 0
    assert disk_use(tmp_path) == (one, one, 2 * one, one)
