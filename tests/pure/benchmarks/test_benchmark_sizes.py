"""The cost of a search by size: the measure itself on small sizes, slopes, page and picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sizes
from benchmarks.sizes import Extent, Figures, Point, draw, measure, page, slope

SMALL = Extent((300, 600), 8, (4, 8), 300, (1, 3), 600)
POINTS = [Point(100, 10.0, 10.0, 8.0), Point(400, 20.0, 15.0, 8.0), Point(1600, 40.0, 20.0, 8.0)]


def test_each_size_grows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "QUERIES", 10)
    said: list[str] = []
    series = measure(SMALL, said.append).series
    assert {kind: [p.size for p in points] for kind, points in series.items()} == {
        "rows": [300, 600],
        "dimensions": [4, 8],
        "segments": [1, 3],
    }
    assert all(min(p.node_us, p.node_all_us, p.faiss_us) > 0 for points in series.values() for p in points)
    assert len(said) == 6


def test_four_times_the_size_at_twice_the_cost_is_a_slope_of_a_half() -> None:
    assert slope(POINTS, lambda p: p.node_us) == pytest.approx(0.5)
    assert slope(POINTS, lambda p: p.faiss_us) == pytest.approx(0.0)


def test_page_and_picture_show_every_series(tmp_path: Path) -> None:
    figures = Figures({"rows": POINTS, "segments": POINTS})
    text = page(figures, {"processor": "of a test"})
    assert "*processor: of a test.*" in text
    assert "| 400 | 20 | 15 | 8 | 2.50 |" in text
    assert text.count("Slope: 0.50, of faiss 0.00.") == 2
    draw(figures, tmp_path / "sizes.svg")
    drawn = (tmp_path / "sizes.svg").read_text()
    assert "segments" in drawn
    assert "query node" in drawn
