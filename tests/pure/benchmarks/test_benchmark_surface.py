"""The surface benchmark: titles, what is kept is not built again, and scalars need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pymilvus import MilvusClient

from benchmarks.report.surface_page import TITLES, render_surface
from benchmarks.surface import scalar
from benchmarks.surface.figures import Part, Surface, line
from benchmarks.surface.growing import about as about_growing
from benchmarks.surface.measure import PARTS
from benchmarks.surface.server import Served


def test_each_part_has_a_title_and_says_what_it_measures() -> None:
    assert PARTS.keys() == TITLES.keys()
    for planned in PARTS.values():
        assert f"{planned.rows:,}" in planned.about(planned.rows)
    parts = {name: Part(about_growing(10), 0.5, [line("p50, ms", [1, 2, 9], "≤ 1")]) for name in PARTS}
    page = render_surface(Surface("1", "a machine", parts))
    assert all(f"## {title}" in page for title in TITLES.values())
    assert page.count("| p50, ms | 2 | 1 to 9 | ≤ 1 | **falls short** |") == len(PARTS)


def test_scalar_indexes_are_measured_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "CALLS", 4)
    monkeypatch.setattr(scalar, "LITERALS", 1000)
    found = scalar.measure(3000, 2, None, lambda _: None)
    assert [one.wanted for one in found if one.wanted] == [
        *("≤ 60", "≤ 250", "≤ 50", "≤ 100"),
        *("≤ 60", "≤ 1.1", "≤ 0.15", "≤ 0.15"),
    ]
    assert all(one.low <= one.middle <= one.high for one in found)


class _Client:
    """A client of a server whose index is finished."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def load_collection(self, name: str) -> None:
        self.loaded.append(name)

    def list_indexes(self, name: str) -> list[str]:
        return ["v"]

    def describe_index(self, name: str, index: str) -> dict[str, str]:
        return {"state": "Finished"}


class _Kept(Served):
    client: Any = _Client()


def test_what_an_earlier_run_built_is_only_loaded(tmp_path: Path) -> None:
    (tmp_path / "rows.kept").touch()
    server = _Kept(tmp_path)

    def no_batches() -> Iterator[pa.RecordBatch]:
        pytest.fail("the rows are drawn again")
        yield

    index = MilvusClient.prepare_index_params()
    took_s = server.fill("rows", MilvusClient.create_schema(), index, no_batches(), lambda _: None)
    assert list(took_s) == ["load"], "this run has measured nothing else"
    assert server.client.loaded == ["rows"]
