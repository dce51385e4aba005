"""A whole run over faiss in process: workers are started and given work, their answers are recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks import kernels, measures, runner
from benchmarks.bench import Bench, Values
from benchmarks.clients import Client, WorkerError, clients
from benchmarks.dataset import Dataset
from benchmarks.measures import Measure
from benchmarks.measures.insert import measure_several_writers
from benchmarks.processes import Usage
from benchmarks.results import Results
from benchmarks.settings import quick
from benchmarks.systems import Place
from benchmarks.systems.faiss_raw import FaissSystem
from benchmarks.yardstick import machine_speed

pytestmark = pytest.mark.slow

SETTINGS = dataclasses.replace(
    quick(),
    queries=40,
    recall_queries=40,
    filter_recall_queries=40,
    search_s=0.05,
    batch_queries=20,
    clients_many=2,
    insert_batch_rows=150,
    selectivities_percent=(50,),
)


class Named(FaissSystem):
    """faiss under another name, which knows whether it was closed."""

    def __init__(self, name: str, place: Place) -> None:
        super().__init__(place)
        self.name = name
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def hasty_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "machine_speed", lambda: machine_speed(length_s=0.01))


@pytest.fixture
def data() -> Dataset:
    random = np.random.default_rng(3)
    train, test = (random.random((n, 8), dtype=np.float32) for n in (400, 40))
    return Dataset("cube", train, test, random.integers(0, 100, 400))


@pytest.fixture
def worker(data: Dataset, tmp_path: Path) -> Iterator[Client]:
    data.write(tmp_path / "vectors")
    system = FaissSystem(Place(tmp_path, tmp_path / "vectors"))
    with clients(system, 1, tmp_path / "log", timeout_s=60, connected=False) as [one]:
        yield one


def test_a_run_measures_everything_that_has_no_server(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = runner.run(runner.Plan(["faiss"], data, SETTINGS, tmp_path / "results.json"))
    assert Results.read(tmp_path / "results.json") == results
    found = results.systems["faiss"]
    assert found.failures == {}
    assert len(found.yardstick) == 7
    assert found.values["search99.recall"] >= 0.99
    assert found.values["filter50.recall"] >= 0.95
    assert found.values["search95.ef"] <= found.values["search99.ef"]
    timed = ("insert.rows_per_s", "build.index_s", "clients.qps", "batch.queries_per_s", "filter50.p50_ms")
    assert all(found.values[key] > 0 for key in timed)
    assert not any(key.startswith(("start", "restart", "after_", "idle")) for key in found.values)
    assert list((tmp_path / ".bench").iterdir()) == []


def fail(bench: Bench) -> Values:
    raise RuntimeError("out of luck")


def test_questions_go_round_and_a_failure_costs_one_figure(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def question(name: str) -> Measure:
        def answer(bench: Bench) -> Values:
            asked.append((name, bench.place.folder.name))
            return {name: 1.0}

        return Measure(name, answer)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "make", lambda name, place, config: Named(name, place))
    monkeypatch.setattr(runner, "LOADING", (question("load"),))
    questions = (question("one"), Measure("bad", fail), question("two"))
    plan = runner.Plan(["left", "right"], data, SETTINGS, tmp_path / "results.json", questions)
    results = runner.run(plan)
    assert asked == [(name, side) for name in ("load", "one", "two") for side in ("left", "right")]
    for found in results.systems.values():
        assert found.values == {"load": 1.0, "one": 1.0, "two": 1.0}
        assert found.failures == {"bad": "RuntimeError: out of luck"}


def test_a_system_that_cannot_be_loaded_leaves_the_run(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Named] = []

    def make(name: str, place: Place, config: Path | None) -> Named:
        if name == "absent":
            raise RuntimeError("no such program")
        made.append(Named(name, place))
        return made[-1]

    def load(bench: Bench) -> Values:
        return {"load": 1.0} if bench.system.name == "good" else fail(bench)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "make", make)
    monkeypatch.setattr(runner, "LOADING", (Measure("load", load),))
    questions = (Measure("one", lambda bench: {"one": float(made[0].closed)}),)
    plan = runner.Plan(["broken", "absent", "good"], data, SETTINGS, tmp_path / "results.json", questions)
    systems = runner.run(plan).systems
    assert systems["absent"].failures == {"set up": "no such program"}
    assert systems["broken"].failures == {"load": "RuntimeError: out of luck"}
    assert systems["broken"].values == {}
    assert systems["good"].values == {"load": 1.0, "one": 1.0}
    assert all(system.closed for system in made)


def test_a_worker_reports_errors_and_goes_on(worker: Client) -> None:
    with pytest.raises(WorkerError, match="KeyError"):
        worker.call("insert", collection="nowhere", rows=10, batch_rows=5)
    with pytest.raises(WorkerError, match="KeyError"):
        worker.call("no_such_call")
    with pytest.raises(WorkerError, match="prepare_search"):
        worker.call("search_for", seconds=1.0, skip=0, stop_file=None)
    assert worker.call("ping") is None


def test_a_search_ends_when_the_stop_file_appears(worker: Client, tmp_path: Path) -> None:
    worker.call("create", collection="c")
    worker.call("insert", collection="c", rows=400, batch_rows=400)
    worker.call("build_index", collection="c", m=16, ef_construction=40)
    worker.call("prepare_search", collection="c", batch=1, ef=10, top_k=10, bucket_below=None, warm_up=1)
    worker.begin("search_for", seconds=600.0, skip=0, stop_file=str(tmp_path / "stop"))
    (tmp_path / "stop").touch()
    run = worker.finish()
    assert run["seconds"] < 60
    counted = worker.call("search_for", seconds=0.05, skip=7, stop_file=None)
    assert len(counted["latency_us"]) > 1
    assert counted["seconds"] >= 0.05


def test_several_writers_insert_each_its_part(worker: Client) -> None:
    worker.call("create", collection="c")
    for first in (0, 200):
        done = worker.call("insert", collection="c", rows=200, batch_rows=150, first=first)
        assert done["client_cpu_s"] >= 0
    with pytest.raises(WorkerError, match="expects position 400"):
        worker.call("insert", collection="c", rows=200, batch_rows=150, first=100)


class Writers(Bench):
    """Clients that write nothing, and what each was asked for."""

    asked: list[tuple[str, dict[str, Any]]]

    def usage(self, workers: Sequence[Client]) -> Usage:
        return Usage({"server": 0.002 * sum(arguments["rows"] for _, arguments in self.asked)}, {})

    @contextmanager
    def more_clients(self, count: int, *, connected: bool = True) -> Iterator[list[Client]]:
        yield [cast("Client", self) for _ in range(count)]

    def call(self, name: str, **_: Any) -> None:
        assert name in ("create", "drop")

    def begin(self, name: str, **arguments: Any) -> None:
        self.asked.append((name, arguments))

    def finish(self) -> dict[str, float]:
        return {"client_cpu_s": 0.3}


def test_writers_at_once_share_the_rows(data: Dataset, tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path)
    bench = Writers(FaissSystem(place), None, place, data, SETTINGS, cast("Client", None))
    bench.main, bench.asked = cast("Client", bench), []
    found = measure_several_writers(bench)
    assert [(a["first"], a["rows"], a["batch_rows"]) for _, a in bench.asked] == [
        (0, 200, 150),
        (200, 200, 150),
    ]
    assert found["writers.rows_per_s"] > 0
    assert found["writers.client_cpu_ms_per_1000_rows"] == pytest.approx(1500)
    assert found["writers.cpu_ms_per_1000_rows"] == pytest.approx(2000)


def test_a_worker_that_takes_too_long_is_ended(data: Dataset, tmp_path: Path) -> None:
    data.write(tmp_path / "vectors")
    system = FaissSystem(Place(tmp_path, tmp_path / "vectors"))
    with clients(system, 1, tmp_path / "log", timeout_s=0.01, connected=False) as [late]:
        with pytest.raises(WorkerError, match="took over"):
            late.call("ping")
        with pytest.raises(WorkerError):
            late.call("ping")


def test_servers_only_are_asked_what_only_servers_know() -> None:
    names = [one.name for one in measures.LOADING + measures.QUESTIONS if one.server_only]
    assert names == [
        "start",
        "idle",
        "insert, several clients",
        "search during a build",
        "reads after writes",
        "search during inserts",
        "restart",
    ]


def test_every_kernel_answers_for_all_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    smaller = {
        "REPEATS": 1,
        "SEGMENTS": 500,
        "FILTERED_SEGMENTS": 100,
        "DELETED_ROWS": 10_000,
        "DELETED_KEYS": 2000,
    }
    for name, value in smaller.items():
        monkeypatch.setattr(kernels, name, value)
    found = list(kernels.kernels(filter_rows=1000))
    assert [len(kernel.action()) for kernel in found] == [kernel.rows for kernel in found]
    assert all(kernels.median_ms(kernel) > 0 for kernel in found)
