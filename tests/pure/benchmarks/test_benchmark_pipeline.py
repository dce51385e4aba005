"""The pipeline's benchmark: its page says what was measured, and both sides of a comparison do the work."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from benchmarks.pipeline import compacting, figures, flushing, importing, indexing
from benchmarks.pipeline import courses as growth_courses
from benchmarks.pipeline.far import Far
from benchmarks.pipeline.figures import Figures, courses, measures
from benchmarks.pipeline.flush_call import FlushCalls
from benchmarks.pipeline.growth import GrowthPoint
from benchmarks.pipeline.joins import JoinMemory, Joins
from benchmarks.pipeline.places import DISK, FAR, Turns
from benchmarks.pipeline.sides import Sides, in_turns
from benchmarks.pipeline.task_memory import TaskMemory
from benchmarks.report.growth_plot import draw_growth
from benchmarks.report.pipeline_page import COMPARISONS, render_pipeline
from benchmarks.settings import SHOWN_GROWTH, SHOWN_PIPELINE
from elanus.pipeline.flush import flush_task
from elanus.pipeline.import_plan import cut
from elanus.server.settings import DatacoordSettings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
GROWTH = {
    "flush": [GrowthPoint(100_000, 0.2, 500.0), GrowthPoint(5_000_000, 12.0, 501.0)],
    "HNSW build": [GrowthPoint(100_000, 1.0, 500.0), GrowthPoint(5_000_000, 80.0, 499.0)],
}


def found(plain_s: float, ours_s: float, flushed_s: float) -> Figures:
    sides = Sides(10, 4, [plain_s, plain_s, 9.0], [ours_s, ours_s, 9.0])
    jobs = {line.name: sides for line in COMPARISONS}
    return Figures("1", "m", jobs, FlushCalls(10, 4, [flushed_s] * 3), 32, GROWTH)


def test_the_picture_is_drawn_from_the_same_results(tmp_path: Path) -> None:
    shown = msgspec.json.decode((ROOT / SHOWN_PIPELINE).read_bytes(), type=Figures)
    draw_growth(shown.growth, tmp_path / SHOWN_GROWTH.name)
    words = re.compile(r"<text[^>]*>([^<]*)")
    drawn = (tmp_path / SHOWN_GROWTH.name).read_text()
    assert words.findall(drawn) == words.findall((ROOT / SHOWN_GROWTH).read_text())


def test_a_page_has_a_line_for_every_job() -> None:
    assert [line.name for line in COMPARISONS] == list(measures(threads=1))


def test_a_met_target_is_distinguished_from_a_missed_one() -> None:
    met, missed = (render_pipeline(found(*times)) for times in ((1.0, 1.0, 1.5), (0.5, 1.0, 1.6)))
    assert "**1.00 of the speed**, 1.00 by the fastest turns (target at least 0.6: met)" in met
    assert "**1.00 times as long**, 1.00 by the fastest turns (target at most 1.15: met)" in met
    assert "**1.50 s** after\nthe call (target 1.5 s: met)" in met
    assert "**0.50 of the speed**, 0.50 by the fastest turns (target at least 0.6: missed)" in missed
    assert "**2.00 times as long**, 2.00 by the fastest turns (target at most 1.15: missed)" in missed
    assert "(target 1.5 s: missed)" in missed


def test_the_spread_of_the_turns_is_shown() -> None:
    shown = found(1.0, 1.0, 1.0)
    import_ = Sides(10, 4, [0.4, 1.0, 1.7], [0.9, 1.1, 1.3])
    page = render_pipeline(msgspec.structs.replace(shown, jobs=shown.jobs | {"import": import_}))
    (line,) = (line for line in page.splitlines() if line.startswith("| import |"))
    assert "| 0.90 / 1.10 / 1.30 s | 0.40 / 1.00 / 1.70 s |" in line
    assert "**0.91 of the speed**, 0.44 by the fastest turns |" in line


def test_growth_shows_in_the_cost_of_a_row() -> None:
    page = render_pipeline(found(1.0, 1.0, 1.0))
    assert "| flush | 5,000,000 | 12.00 s | 416,667 | 2.40 µs | 501 MB | not measured |" in page
    flush, index = (line for line in page.split("- **") if line.startswith(("Flush", "HNSW build")))
    assert "50 times as many rows took 60.0 times as long" in flush
    assert "a row **1.20 times**\n  as much (linear)" in flush
    assert "a row **1.60 times**\n  as much (more than linear)" in index


def test_the_spread_of_growth_and_the_memory_of_tasks_are_shown() -> None:
    point = GrowthPoint(1000, 2.0, 500.0, 123.4, 1.5, 3.0)
    page = render_pipeline(msgspec.structs.replace(found(1.0, 1.0, 1.0), growth={"flush": [point]}))
    assert "| flush | 1,000 | 1.50 / 2.00 / 3.00 s | 500 | 2000.00 µs | 500 MB | 123 MB |" in page


def test_calls_clusters_and_stores_have_sections_once_they_are_measured() -> None:
    plain = found(1.0, 1.0, 1.0)
    page = render_pipeline(plain)
    assert "its caller sees it" in page
    assert not any(title in page for title in ("An import as", "Spark cluster", "distance of"))
    slow, quick = Turns(300_000, 128, [2.0, 3.0, 4.0], 80.0), Turns(300_000, 128, [1.0, 1.5, 2.0], 90.0)
    measured = msgspec.structs.replace(
        plain,
        imports={"segments are committed": quick, "reads find the rows": slow},
        workers={"1": slow, "2": quick},
        stores={DISK: quick, FAR: slow},
    )
    page = render_pipeline(measured)
    assert "| segments are committed | 1.00 / 1.50 / 2.00 s | 200,000 |" in page
    assert "150,000 rows/s on two processors: met." in page
    assert "| 2 | 1.00 / 1.50 / 2.00 s | 200,000 | 2.00 times the speed | 90 MB |" in page
    assert "| S3 30 ms away | 2.00 / 3.00 / 4.00 s | 100,000 | 1.50 s |" in page


def test_joins_are_compared_by_the_throughput_of_their_medians() -> None:
    joins = Joins(
        rows=1000,
        dim=4,
        queries=100,
        join_s=[1.0, 2.0, 4.0],
        faiss_s=[1.0, 1.5, 1.5],
        recall=0.99,
        exact=10,
        exact_s=[3.0],
        few=10,
        few_join_s=[0.5],
        spark_s=[8.0],
        duplicates_s=[7.0],
        copies=10,
        duplicates=9,
        memory=JoinMemory(segments_mb=600.0, empty_mb=200.0, most_mb=1050.0),
        exact_memory=JoinMemory(segments_mb=300.0, empty_mb=200.0, most_mb=800.0),
    )
    plain = found(1.0, 1.0, 1.0)
    assert "nearestByJoin" not in render_pipeline(plain)
    page = render_pipeline(msgspec.structs.replace(plain, joins=joins))
    assert "**0.75** of the throughput of faiss alone (target at least 0.8:\nmissed)" in page
    assert "**40 times** that of Spark's own join (target at least\n20: met)" in page
    assert "took **7.0 s** and named 9." in page
    assert "| kNN join | 600 MB | 200 MB | 1,000 MB | 1,050 MB | 1.05 of the budget: met |" in page
    assert "| kNN join, exact | 300 MB | 200 MB | 700 MB | 800 MB | 1.14 of the budget: missed |" in page


def test_a_part_can_be_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = found(1.0, 1.0, 1.0)
    workers = {"1": Turns(10, 4, [1.0])}
    monkeypatch.setitem(figures._MEASURED, "workers", lambda report, size: {"workers": workers})
    after = figures.measure(print, ["workers"], figures.QUICK, before)
    assert after.workers == workers
    assert (after.jobs, after.growth, after.flush_calls) == (before.jobs, before.growth, before.flush_calls)


def test_every_task_of_an_import_on_a_cluster_has_rows_of_its_own(tmp_path: Path) -> None:
    plan = importing.make_plan(tmp_path, 1000, 4, groups=4)
    parts = cut(plan.parts, 250)
    assert [sum(part.rows for part in some) for some in parts] == [250] * 4


_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
_CHILD = "print(flush=True); input()"


@pytest.mark.parametrize(("name", "counts"), [("elanus.pipeline.daemon", True), ("another", False)])
def test_memory_is_that_of_spark_workers_below_a_process(name: str, counts: bool) -> None:
    command = [sys.executable, "-c", _PARENT, _CHILD, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the child runs
        memory = TaskMemory(psutil.Process(parent.pid))
        memory.look()
        parent.communicate(b"\n")
    assert (memory.most_mb > 0) is counts


def test_a_relay_carries_all_bytes_both_ways() -> None:
    with contextlib.ExitStack() as closing:
        server = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.settimeout(30)
        far = closing.enter_context(Far("{}:{}".format(*server.getsockname()), 1))
        host, _, port = far.address.rpartition(":")
        client = closing.enter_context(socket.create_connection((host, int(port)), 30))
        there = closing.enter_context(server.accept()[0])
        there.settimeout(30)
        client.sendall(b"question" * 1000)
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: there.recv(4096), b"")) == b"question" * 1000
        there.sendall(b"answer")
        assert client.recv(100) == b"answer"


def test_sides_take_turns_and_the_first_does_not_count() -> None:
    calls: list[str] = []
    sides = in_turns(
        1, 1, 2, lambda number: calls.append(f"plain {number}"), lambda number: calls.append(f"ours {number}")
    )
    assert calls == ["plain 0", "ours 0", "plain 1", "ours 1", "plain 2", "ours 2"]
    assert len(sides.plain_s) == len(sides.ours_s) == 2


def test_the_build_of_a_segment_is_measured_without_a_turn_before() -> None:
    sides = indexing.measure_large(1000, 8, 2)
    assert (sides.rows, sides.dim, len(sides.plain_s), len(sides.ours_s)) == (1000, 8, 2, 2)
    first, second = indexing.summary(Sides(1000, 8, [2.0, 4.0], [3.0, 6.0])).splitlines()
    assert first == "1,000 rows of 8 dimensions: the task 3.0 / 6.0 s, raw faiss 2.0 / 4.0 s"
    assert second == "the task takes 1.50 times as long"


def test_every_range_of_a_measured_log_holds_all_rows(tmp_path: Path) -> None:
    plans = flushing.write_log_ranges(tmp_path, flushing.make_rows(2000, 768), 3)
    outcomes = [flush_task((replace(plan, attempt=f"{number}"),))[0] for number, plan in enumerate(plans)]
    assert [file.rows for outcome in outcomes for file in outcome.files] == [2000] * 3


def test_every_course_works_on_all_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_courses, "RANGE_ROWS", 1000)
    monkeypatch.setattr(growth_courses, "DatacoordSettings", lambda: DatacoordSettings(segment_size_max_mb=1))
    steps = (2000, 20_000)
    for name, course in courses(tmp_path, 4, steps, steps, 1).items():
        for rows in steps:
            jobs = course.jobs(rows, f"{rows}")
            outputs = [job.output([job.task(plan) for plan in job.plans]) for job in jobs]
            deleted = rows // 10 if name == "compaction" else 0
            assert sum(output.rows for output in outputs) == rows - deleted
            assert all(course.store.head(path).size_bytes for o in outputs for path in o.objects)
        wanted = 1 if name in ("flush", "import") else 2
        assert len(jobs) == wanted, "the most rows do not fit into one segment"


def test_what_is_measured_runs(tmp_path: Path) -> None:
    for measured, place in ((flushing, "flush"), (importing, "import"), (compacting, "compaction")):
        (tmp_path / place).mkdir()
        sides = measured.measure(tmp_path / place, 300, 8, 1)
        assert sides.speed > 0
