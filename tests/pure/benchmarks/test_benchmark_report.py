"""The page says what the results say: no figure without a measurement, no pass that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.freshness import Freshness, ProxyFigures, Round
from benchmarks.report.catalog import TABLES
from benchmarks.report.freshness_page import render_freshness
from benchmarks.report.page import markdown_table, render_large_page, render_page
from benchmarks.report.pages import PAGES
from benchmarks.report.targets import TARGETS, Side, Target, judge
from benchmarks.results import Results, SystemResult
from benchmarks.settings import Settings

ROOT = Path(__file__).parents[3]


def results(**systems: SystemResult) -> Results:
    return Results({"data": "ten digits"}, dict.fromkeys(vars(Settings()), 1), dict(systems))


@pytest.mark.parametrize(
    ("side", "mine", "other", "reached", "text"),
    [
        (Side.AT_MOST, 1.0, 2.0, 0.5, "pass"),
        (Side.AT_MOST, 1.1, 2.0, 0.55, "**falls short**"),
        (Side.AT_LEAST, 1.1, 2.0, 0.55, "pass"),
        (Side.AT_LEAST, 0.9, 2.0, 0.45, "**falls short**"),
        (Side.AT_LEAST, None, 2.0, None, "not measured"),
        (Side.AT_LEAST, 0.9, None, None, "not measured"),
        (Side.AT_LEAST, 0.9, 0.0, None, "not measured"),
    ],
)
def test_a_ratio_is_judged_by_its_side(
    side: Side, mine: float | None, other: float | None, reached: float | None, text: str
) -> None:
    target = Target("speed", "a.qps", side, 0.5, "milvus", "b.qps")
    figures = {
        "elanus": {} if mine is None else {"a.qps": mine},
        "milvus": {} if other is None else {"b.qps": other},
    }
    verdict = judge(target, figures)
    assert verdict.reached == (None if reached is None else pytest.approx(reached))
    assert verdict.text == text


def test_a_plain_bound_needs_no_other_system() -> None:
    target = Target("restart, s", "restart.searchable_s", Side.AT_MOST, 10)
    assert judge(target, {"elanus": {"restart.searchable_s": 9.5}}).text == "pass"
    assert target.wanted == "≤ 10"


def test_every_target_is_about_a_figure_that_the_page_shows() -> None:
    shown = {metric.key for table in TABLES for metric in table.metrics}
    assert {target.key.partition("@")[0] for target in TARGETS} <= shown
    assert {target.other_key for target in TARGETS if target.other_key} <= shown


def test_a_table_has_a_cell_for_every_system_and_the_ratio() -> None:
    page = render_page(
        results(
            milvus=SystemResult("2.3.5", {"search95.qps": 400.0}, yardstick=[1, 1]),
            elanus=SystemResult("0.1", {"search95.qps": 1000.0, "build.flush_s": 2.0}, yardstick=[1, 1]),
        )
    )
    assert "| 1 client, recall ≥ 0.95: QPS | 1,000 | 400 | 2.50 |" in page
    assert "| flush, s | 2.0 | – | – |" in page
    assert "| search, 1 client: QPS | ≥ 2.2 × milvus | 2.5 | pass |" in page
    assert "recall ≥ 0.99: ef" not in page


def test_roles_and_failures_are_shown() -> None:
    page = render_page(
        results(
            elanus=SystemResult(
                "0.1",
                {"loaded.rss_mb": 900.0, "loaded.rss_mb@online": 430.0, "loaded.rss_mb@jvm": 470.0},
                failures={"restart": "WorkerError: not there\nsecond line"},
                yardstick=[10, 11],
            )
        ),
        notes="It never came back.",
    )
    assert "| resident memory, loaded, MB | 470 | 430 |" in page
    assert "| online process, loaded, MB | ≤ 450 | 430 | pass |" in page
    assert "- Elanus, restart: WorkerError: not there\n" in page
    assert "It never came back." in page


def test_a_run_of_a_large_set_shows_what_it_asked() -> None:
    asked = results(
        milvus=SystemResult("2.3.5", {"filter10.qps": 400.0}, yardstick=[1, 1]),
        elanus=SystemResult("0.1", {"filter10.qps": 900.0}, yardstick=[1, 1]),
    )
    page = render_large_page("large", "a million vectors", asked, notes="Because of this.")
    assert "| filter 10 %: QPS | ≥ 2 × milvus | 2.25 | pass |" in page
    assert "Because of this." in page
    assert "not measured" not in page
    assert "### Getting data in" not in page
    assert "not measured" in render_page(asked)


def test_a_quick_run_says_so() -> None:
    short, long = results(), results()
    long.settings["repeats"] = 3
    assert "**A quick run**" in render_page(short)
    assert "**A quick run**" not in render_page(long)


def test_short_rows_are_filled_up() -> None:
    assert markdown_table(("", "a"), [["x"]]) == "|  | a |\n| --- | ---: |\n| x |  |\n"


def test_results_survive_their_file(tmp_path: Path) -> None:
    written = results(faiss=SystemResult("1.15", {"batch.p50_ms": 2.5}, {"build": "no"}, [1.0, 2.0]))
    written.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == written
    (tmp_path / "other.json").write_text('{"format": 0}')
    with pytest.raises(ValueError, match="format"):
        Results.read(tmp_path / "other.json")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_the_documentation_is_made_from_the_results_next_to_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    page = PAGES[name]
    assert page.made_from() == page.results.with_suffix(".md").read_text()


def test_a_missed_freshness_target_is_said() -> None:
    quick = [Round(1.0, 2.0, 2.5, 3.5)] * 5
    slow = [Round(1.0, 2.0, 10.5, 15.0)] * 5
    page = render_freshness(Freshness("1", "m", 10, 4, [ProxyFigures(1, quick), ProxyFigures(3, slow)]))
    one, three = (line for line in page.splitlines() if line.startswith(("| 1 |", "| 3 |")))
    assert "**0.5 ms** (target 3: met) | **3.5 ms** (target 15: met)" in one
    assert "**8.5 ms** (target 8: missed) | **15.0 ms** (target 15: missed)" in three
