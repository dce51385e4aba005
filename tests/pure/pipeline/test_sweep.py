"""Sweeping a prefix of the object store: what goes is deleted, twice does no harm, memory stays flat."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from elanus.api.gc import SweepOrder
from elanus.core.gc import SweepRules, Verdict
from elanus.core.ids import BuildID, CollectionID, PartitionID, SegmentID
from elanus.core.path_digests import digests
from elanus.pipeline.sweep import SweepPlan, sweep, sweep_job, sweep_task
from elanus.storage import paths
from elanus.storage.objects import open_store
from elanus.storage.paths import (
    INDEX_FILES,
    INSERT_LOG,
    MANIFESTS,
    PREFIXES,
    delta_log_path,
    index_file_path,
    insert_log_path,
    manifest_path,
    parse,
    stats_log_path,
)
from elanus.storage.port import ObjectInfo, ObjectStore

C, P, S, LATER_MS = CollectionID(1), PartitionID(2), SegmentID(3), 4e12
RULES = SweepRules(named=b"", attempts_below=100, modified_before_ms=LATER_MS, unnumbered_before_ms=LATER_MS)


def log(name: str, segment: SegmentID = S) -> str:
    return insert_log_path(C, P, segment, name)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def put(store: ObjectStore, *paths: str) -> None:
    for path in paths:
        store.put(path, b"12345")


def left(store: ObjectStore) -> set[str]:
    return {info.path for info in store.list("")}


def test_every_path_is_parsed_as_what_it_was_made_of() -> None:
    assert parse(log("a7-x")) == parse(stats_log_path(C, P, S, "a7-y"))
    made = parse(log("a7-x"))
    assert made is not None
    assert (made.owner, made.attempt, made.build_id) == ("3", 7, 0)
    delta, manifest = parse(delta_log_path(C, "dml_0_1v0", "a8-x")), parse(manifest_path(C, S, "a9-x"))
    assert delta is not None
    assert manifest is not None
    assert (delta.owner, delta.attempt, manifest.owner, manifest.attempt) == ("dml_0_1v0", 8, "3", 9)
    index = parse(index_file_path(BuildID(5), 2, P, S, "a1-x"))
    assert index is not None
    assert (index.owner, index.build_id, index.version) == ("3", 5, 2)


EXAMPLES = {
    "collection": C, "partition": P, "segment": S, "vchannel": "dml_0_1v0", "build": BuildID(5), "version": 2,
    "job": "7", "name": "a7-x", "task": 8,
}  # fmt: skip


def test_everything_that_is_written_is_below_a_prefix_that_is_swept() -> None:
    """A new kind of object gets a function in `elanus.storage.paths`, and must be collected."""
    made = {name: of for name, of in vars(paths).items() if name.endswith("_path") and name != "checked_path"}
    assert len(made) >= 7
    found = set()
    for name, of in made.items():
        path = of(*(EXAMPLES[parameter] for parameter in inspect.signature(of).parameters))
        prefix = path.partition("/")[0]
        assert prefix in PREFIXES, f"{name}: {prefix} is not swept"
        assert parse(path) is not None, f"{name}: {path} is taken for a foreign object, and kept forever"
        found.add(prefix)
    assert found == set(PREFIXES)


def test_paths_are_made_in_one_place_only() -> None:
    """No module writes below a prefix that it spells itself."""
    spelled = re.compile(rf"""["'](?:{"|".join(PREFIXES)})/""")
    root = Path(paths.__file__).parents[1]
    rest = root / "proxy" / "rest"  # whose paths are those of URLs
    sources = [s for s in root.rglob("*.py") if not s.is_relative_to(rest)]
    assert [str(s) for s in sources if spelled.search(s.read_text())] == []


@pytest.mark.parametrize(
    "path",
    ["insert_log/1/2/x/name", "insert_log/1/2/3", "other/1/2/3/n", "index_files/1/2/3", "manifests/a/b/c"],
)
def test_other_paths_are_nobodys(path: str) -> None:
    assert parse(path) is None


def test_a_sweep_deletes_what_goes_and_reports_what_stays(store: ObjectStore) -> None:
    named, closed, open_, pinned = log("a1-n"), log("a99-x"), log("a100-x"), log("a1-p", SegmentID(8))
    gone = log("a200-named", SegmentID(9))
    put(store, named, closed, open_, pinned, f"{INSERT_LOG}/readme", gone)
    rules = replace(RULES, named=digests([named, gone]), kept=frozenset({"8"}), gone=frozenset({"9"}))
    outcome = sweep(SweepOrder(INSERT_LOG, rules, delete=True), store)
    assert left(store) == {named, open_, pinned, f"{INSERT_LOG}/readme", gone}
    found = {f.verdict: (f.objects, f.bytes, tuple(sorted(f.examples))) for f in outcome.findings}
    assert found == {
        Verdict.NAMED: (2, 10, tuple(sorted((named, gone)))),
        Verdict.SUPERSEDED: (1, 5, (closed,)),
        Verdict.OPEN: (1, 5, (open_,)),
        Verdict.PINNED: (1, 5, (pinned,)),
        Verdict.FOREIGN: (1, 5, (f"{INSERT_LOG}/readme",)),
    }


def test_a_dry_run_reports_the_same_and_deletes_nothing(store: ObjectStore) -> None:
    put(store, log("a1-x"), log("a2-x"), log("a200-x"))
    before = left(store)
    dry = sweep(SweepOrder(INSERT_LOG, RULES, delete=False), store)
    assert left(store) == before
    assert sweep(SweepOrder(INSERT_LOG, RULES, delete=True), store) == dry


def test_a_sweep_touches_its_own_prefix_only(store: ObjectStore) -> None:
    put(store, log("a1-x"), manifest_path(C, S, "a1-x"))
    sweep(SweepOrder(MANIFESTS, RULES, delete=True), store)
    assert left(store) == {log("a1-x")}


class Dying:
    """A store whose deletions fail after the first few."""

    def __init__(self, store: ObjectStore, deletions: int) -> None:
        self.list = store.list
        self._store = store
        self._deletions = deletions

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not self._deletions:
                raise OSError("the network is gone")
            self._deletions -= 1
            self._store.delete(path)


def test_a_sweep_that_died_is_followed_by_one_that_goes_on(store: ObjectStore) -> None:
    put(store, *(log(f"a{n}-x") for n in range(1, 10)), log("a100-x"))
    order = SweepOrder(INSERT_LOG, RULES, delete=True)
    with pytest.raises(OSError, match="network"):
        sweep(order, Dying(store, 4))
    assert len(left(store)) == 6
    sweep(order, store)
    sweep(order, store)
    assert left(store) == {log("a100-x")}


def test_an_object_that_vanishes_meanwhile_counts_as_deleted(store: ObjectStore) -> None:
    class Racing:
        delete_all = store.delete_all

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            for info in list(store.list(prefix)):
                store.delete(info.path)
                yield info

    put(store, log("a1-x"), log("a2-x"))
    (finding,) = sweep(SweepOrder(INSERT_LOG, RULES, delete=True), Racing()).findings
    assert (finding.verdict, finding.objects) == (Verdict.SUPERSEDED, 2)


def test_the_job_has_one_task_a_prefix_and_counts_what_went(store: ObjectStore) -> None:
    put(store, log("a1-x"), log("a2-x"), log("a200-x"))
    orders = [SweepOrder(prefix, RULES, delete=True) for prefix in (INSERT_LOG, INDEX_FILES)]
    job = sweep_job(orders, store.url)
    assert job.inputs == (INSERT_LOG, INDEX_FILES)
    outcomes = [sweep_task(plan) for plan in job.plans]
    assert isinstance(job.plans[0], SweepPlan)
    output = job.output(outcomes)
    assert (output.rows, output.size_bytes) == (2, 10)


_MILLION = """
from datetime import UTC, datetime
from elanus.core.gc import SweepRules
from elanus.core.path_digests import digests
from elanus.pipeline.sweep import sweep
from elanus.api.gc import SweepOrder
from elanus.storage.port import ObjectInfo

OBJECTS = 1_000_000
STAMP = datetime(2024, 1, 1, tzinfo=UTC)

def path(n):
    segment = 440000000000000000 + n // 4
    return f"insert_log/440000000000000001/440000000000000002/{segment}/a{n}-0123456789ab.parquet"

class Store:
    deleted = 0
    def list(self, prefix):
        return (ObjectInfo(path(n), 1000, STAMP) for n in range(OBJECTS))
    def delete_all(self, paths):
        self.deleted += len(paths)

store = Store()
rules = SweepRules(digests(path(n) for n in range(0, OBJECTS, 2)), attempts_below=OBJECTS,
                   modified_before_ms=4e12, unnumbered_before_ms=4e12)
sweep(SweepOrder("insert_log", rules, True), store)
# the peak of this program alone: what getrusage reports includes the process that started it
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(store.deleted, int(peak) // 1024)
"""


@pytest.mark.slow
def test_a_million_objects_fit_in_300_mb() -> None:
    run = subprocess.run([sys.executable, "-c", _MILLION], capture_output=True, check=True, text=True)
    deleted, peak_mb = map(int, run.stdout.split())
    assert deleted == 500_000
    assert peak_mb < 300


def test_the_newest_object_is_as_old_as_its_store_says() -> None:
    info = ObjectInfo(log("a1-x"), 1, datetime.fromtimestamp(LATER_MS / 1000 + 1, UTC))

    class Store:
        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            return iter([info])

        def delete_all(self, paths: Sequence[str]) -> None:
            assert paths == []

    (finding,) = sweep(SweepOrder(INSERT_LOG, RULES, delete=True), Store()).findings
    assert finding.verdict is Verdict.YOUNG
