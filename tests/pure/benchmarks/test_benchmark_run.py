"""A whole run over faiss in process: workers are started and told what to do, answers are written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels, measures, runner
from benchmarks.bench import Bench, Values
from benchmarks.clients import Client, WorkerError, clients
from benchmarks.dataset import Dataset
from benchmarks.measures import Measure
from benchmarks.results import Results
from benchmarks.settings import quick
from benchmarks.systems import Place
from benchmarks.systems.faiss_raw import FaissSystem
from benchmarks.yardstick import machine_speed

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
    assert len(found.yardstick) == 2
    assert found.values["search99.recall"] >= 0.99
    assert found.values["filter50.recall"] >= 0.95
    assert found.values["search95.ef"] <= found.values["search99.ef"]
    timed = ("insert.rows_per_s", "build.index_s", "clients.qps", "batch.queries_per_s", "filter50.p50_ms")
    assert all(found.values[key] > 0 for key in timed)
    assert not any(key.startswith(("start", "restart", "after_", "idle")) for key in found.values)
    assert list((tmp_path / ".bench").iterdir()) == []


def test_a_failure_is_written_down_and_only_a_vital_one_ends_the_turn(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(bench: Bench) -> Values:
        raise RuntimeError("out of luck")

    plan = (
        Measure("first", fail),
        Measure("second", lambda bench: {"second": 2.0}),
        Measure("third", fail, vital=True),
        Measure("fourth", lambda bench: {"fourth": 4.0}),
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "MEASURES", plan)
    results = runner.run(runner.Plan(["faiss"], data, SETTINGS, tmp_path / "results.json"))
    found = results.systems["faiss"]
    assert found.values == {"second": 2.0}
    assert found.failures == {"first": "RuntimeError: out of luck", "third": "RuntimeError: out of luck"}


def test_a_worker_reports_errors_and_goes_on(worker: Client) -> None:
    with pytest.raises(WorkerError, match="KeyError"):
        worker.call("insert", collection="nowhere", rows=10, batch_rows=5)
    with pytest.raises(WorkerError, match="KeyError"):
        worker.call("no_such_call")
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


def test_a_worker_that_takes_too_long_is_ended(data: Dataset, tmp_path: Path) -> None:
    data.write(tmp_path / "vectors")
    system = FaissSystem(Place(tmp_path, tmp_path / "vectors"))
    with clients(system, 1, tmp_path / "log", timeout_s=0.01, connected=False) as [late]:
        with pytest.raises(WorkerError, match="took over"):
            late.call("ping")
        with pytest.raises(WorkerError):
            late.call("ping")


def test_servers_only_are_asked_what_only_servers_know() -> None:
    names = [measure.name for measure in measures.MEASURES if measure.server_only]
    assert names == [
        "start",
        "idle",
        "search during a build",
        "reads after writes",
        "search during inserts",
        "restart",
    ]


def test_every_kernel_answers_for_all_its_rows() -> None:
    found = list(kernels.kernels(filter_rows=1000))
    assert [len(kernel.action()) for kernel in found] == [kernel.rows for kernel in found]
    assert all(kernels.median_ms(kernel) > 0 for kernel in found)


def test_a_system_that_cannot_be_set_up_does_not_end_the_run(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(name: str, place: Place, config: Path | None) -> FaissSystem:
        if name == "elanus":
            raise RuntimeError("no such program")
        return FaissSystem(place)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "make", make)
    monkeypatch.setattr(runner, "MEASURES", (Measure("only", lambda bench: {"only": 1.0}),))
    results = runner.run(runner.Plan(["elanus", "faiss"], data, SETTINGS, tmp_path / "results.json"))
    assert results.systems["elanus"].failures == {"set up": "no such program"}
    assert results.systems["faiss"].values == {"only": 1.0}
