"""The page of the front door's figures: each next to its limit, and whether that is met."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import backup_copies, door, kernels, rest
from benchmarks.door import Figure, measure, page


def test_a_figure_is_compared_with_its_limit() -> None:
    assert [Figure("x", value, 10.0, "ms").is_met for value in (9.9, 10.0, 10.1)] == [True, True, False]
    assert [Figure("x", value, 70.0, "%", True).is_met for value in (69.9, 70.0)] == [False, True]
    assert [Figure("x", value, 5.0, "ms").shown for value in (5.0, 5.003, 5.1234)] == ["5", "5.003", "5.12"]
    assert Figure("x", 69.96, 70.0, "%", True).shown == "69.96"
    assert str(Figure("guard", 20.0, 15.0, "µs")) == "guard: 20 µs (≤ 15: NOT met)"


def test_every_figure_is_measured_and_on_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels, "median_ms", lambda kernel: 12.0)
    monkeypatch.setattr(rest, "measure", lambda say: rest.Figures(100.0, 1.5, 1.3, 6.0))
    monkeypatch.setattr(backup_copies, "median_share", lambda directory, say: 0.69)
    monkeypatch.setattr(door, "SAMPLE", (10, 4))
    said: list[str] = []
    found = measure(said.append, tmp_path)
    assert [(one.value, one.is_met) for one in found if one.unit in ("µs", "%")] == [
        (12.0, True),
        (69.0, False),
    ]
    by_name = {one.name.partition(",")[0]: one for one in found}
    assert by_name["median search by REST"].value == pytest.approx(0.2)
    assert [one.is_met for one in found].count(False) == 2
    text = page(found)
    assert len(said) == len(found) == text.count(" | met |") + text.count(" | not met |") == 8
    assert (
        "| server's processor time for an open tab of the console, per second | 6 ms | ≤ 5 ms | not met |"
        in text
    )
