"""The disk's share of an acknowledgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.acknowledgement import Round, _synced_ms, summary


def test_the_disks_share_is_what_a_server_without_it_saves() -> None:
    assert Round(4.0, 1.0, 2.5).share == pytest.approx(0.75)
    rounds = [Round(4.0, 1.0, 2.5), Round(5.0, 2.5, 2.0), Round(2.0, 1.8, 3.0)]
    assert summary(rounds) == (
        "one row is acknowledged in 4.00 ms, 50 % of it the wait for the disk (10 to 75 % in 3 rounds); "
        "one record alone is synchronized in 2.50 ms"
    )


def test_the_disk_is_measured_next_to_the_data(tmp_path: Path) -> None:
    assert _synced_ms(tmp_path / "data", 3) > 0
    assert (tmp_path / "synchronized").stat().st_size == 3 * 512
