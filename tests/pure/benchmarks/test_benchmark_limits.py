"""The limits page says what the steps found, and a run that ends early keeps what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from benchmarks.limits import deleted
from benchmarks.limits import measure as measuring
from benchmarks.limits.figures import Dimension, End, Limits, Look, Step, Trickle
from benchmarks.limits.growth import Gave, Growth, geometric, grow, one_by_one
from benchmarks.limits.measure import DIMENSIONS, Budget, Planned, Spoken, measure
from benchmarks.limits.sealed import add_segments
from benchmarks.report.limits_page import ABOUT, render_limits, verdict
from benchmarks.report.pages import PAGES
from elanus.core.catalog import Checkpoint
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import Timestamp
from elanus.core.types import DataType
from elanus.datacoord.state import DataState
from elanus.datacoord.vchannel_table import Vchannel
from elanus.meta.sqlite import SqliteMeta
from elanus.server.data_dir import DataDir
from elanus.storage.binlog import read_columns
from elanus.storage.delta_log import PRIMARY_KEY_COLUMN, read_delta_log
from elanus.storage.local import LocalStore
from elanus.storage.manifests import read_delta_list, read_manifest

FOREVER_S = 1e9
LOOK = Look(idle_percent=1.5, idle_all_percent=2.5, rss_mb=100.0, open_files=30, restart_s=4.0)


class Clock:
    """Time that passes only when somebody takes it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Fake:
    """Units that take ``one_s`` each. The one with the number ``gives`` fails, ``interrupts`` is interrupted;
    with ``blind`` a look at that count fails."""

    def __init__(
        self,
        clock: Clock,
        one_s: float = 1.0,
        gives: int | None = None,
        interrupts: int | None = None,
        blind: int | None = None,
    ) -> None:
        self._clock = clock
        self._one_s = one_s
        self._gives = gives
        self._interrupts = interrupts
        self._blind = blind
        self.trickled_with: list[int] = []

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        return one_by_one(self._add, have, to, until_s, self._clock)

    def look(self, have: int) -> Look:
        if have == self._blind:
            raise TimeoutError("no answer")
        return LOOK

    def trickle(self, have: int) -> Trickle | None:
        self.trickled_with.append(have)
        return None

    def _add(self, number: int) -> None:
        if number == self._interrupts:
            raise KeyboardInterrupt
        if number == self._gives:
            raise RuntimeError("too many")
        self._clock.now_s += self._one_s


def nothing(_: Dimension) -> None:
    """Keeps nothing."""


def test_the_steps_grow_by_a_factor_and_end_with_the_bound() -> None:
    assert list(geometric(10, 10, 1000)) == [10, 100, 1000]
    assert list(geometric(16, 4, 100)) == [16, 64, 100]
    assert list(geometric(10, 10, 5)) == [5]


def test_a_dimension_that_does_not_give_ends_with_its_bound() -> None:
    clock = Clock()
    fake = Fake(clock, one_s=0.5)
    found = grow("units", fake, [2, 8], FOREVER_S, clock, nothing)
    assert found == Dimension("units", (Step(2, 500.0, LOOK), Step(8, 500.0, LOOK)), End.BOUND, 8)
    assert fake.trickled_with == [8]


def test_what_gave_within_a_step_is_counted_and_quoted() -> None:
    clock = Clock()
    fake = Fake(clock, gives=5)
    found = grow("units", fake, [2, 8], FOREVER_S, clock, nothing)
    assert (found.end, found.at, found.said) == (End.GAVE, 5, "RuntimeError: too many")
    assert [step.count for step in found.steps] == [2]
    assert fake.trickled_with == []


def test_a_server_that_no_longer_answers_when_looked_at_gave() -> None:
    clock = Clock()
    found = grow("units", Fake(clock, blind=8), [2, 8, 16], FOREVER_S, clock, nothing)
    assert (found.end, found.at, found.said) == (End.GAVE, 8, "TimeoutError: no answer")
    assert [step.count for step in found.steps] == [2]


def test_a_dimension_whose_time_is_over_ends_within_the_step_with_what_it_has() -> None:
    clock = Clock()
    found = grow("units", Fake(clock), [2, 8, 100], 5.0, clock, nothing)
    assert (found.end, found.at) == (End.TIME, 5)
    assert [step.count for step in found.steps] == [2, 5]


def test_a_step_that_ends_with_the_time_is_the_last() -> None:
    clock = Clock()
    found = grow("units", Fake(clock), [2, 8], 2.0, clock, nothing)
    assert (found.end, [step.count for step in found.steps]) == (End.TIME, [2])


def test_units_that_come_in_groups_are_counted_as_units() -> None:
    clock = Clock()

    def add(_: int) -> None:
        clock.now_s += 1.6

    assert one_by_one(add, 16, 64, FOREVER_S, clock, units=16) == Growth(64, pytest.approx(100.0))


def test_a_failure_in_the_middle_keeps_its_cause() -> None:
    def add(number: int) -> None:
        if number == 3:
            raise TimeoutError("late")

    with pytest.raises(Gave, match="gave at 3: TimeoutError: late") as raised:
        one_by_one(add, 0, 10, FOREVER_S, Clock())
    assert isinstance(raised.value.__cause__, TimeoutError)


def test_an_interruption_loses_the_step_that_it_is_in() -> None:
    clock, kept = Clock(), []
    with pytest.raises(KeyboardInterrupt):
        grow("units", Fake(clock, interrupts=5), [2, 8], FOREVER_S, clock, kept.append)
    assert kept == [Dimension("units", (Step(2, 1000.0, LOOK),), End.INTERRUPTED, 2)]


def test_a_long_step_is_reported_in_parts_and_costs_what_all_of_it_cost() -> None:
    clock, said = Clock(), []
    spoken = Spoken(Fake(clock, one_s=4.0), lambda reached, to: said.append((reached, to)), clock)
    assert spoken.grow(2, 9, FOREVER_S) == Growth(9, pytest.approx(4000.0))
    assert said == [(5, 9), (8, 9), (9, 9)]


def test_a_long_step_ends_with_the_time_of_its_dimension() -> None:
    clock = Clock()
    spoken = Spoken(Fake(clock, one_s=4.0), lambda reached, to: None, clock)
    assert spoken.grow(0, 100, 18.0) == Growth(5, pytest.approx(4000.0))


def test_a_run_replaces_what_it_measured_and_keeps_the_other_dimensions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(_budget: Budget, clock: object) -> Iterator[Fake]:
        yield Fake(Clock(), gives=5)

    monkeypatch.setattr(measuring, "DIMENSIONS", {"collections": Planned((2, 8), opened)})
    out, page, said = tmp_path / "limits.json", tmp_path / "limits.md", []
    other = Dimension("deletes", (Step(2, 1.0, LOOK),), End.BOUND, 2)
    old = Dimension("collections", (), End.TIME, 1)
    known = Limits("0", "a machine", {"deletes": other, "collections": old})
    out.write_bytes(msgspec.json.encode(known))
    measure(["collections"], Budget(FOREVER_S, 1, 1), out, page, said.append)
    found = msgspec.json.decode(out.read_bytes(), type=Limits)
    assert found.dimensions["deletes"] == msgspec.structs.replace(other, steps=[other.steps[0]])
    assert (found.dimensions["collections"].end, found.dimensions["collections"].at) == (End.GAVE, 5)
    assert page.read_text() == PAGES["limits"].made_from(out)
    assert "gave at 5" in page.read_text()
    assert said[-1] == "collections: ended (gave) at 5 RuntimeError: too many"


def test_the_page_names_what_gave_and_what_the_user_saw() -> None:
    gave = Dimension("partitions", (Step(64, 3.25, LOOK),), End.GAVE, 4095, "number of partitions")
    rendered = render_limits(Limits("1.2.3", "2 processors", {"partitions": gave}))
    assert "| partitions | gave at 4,095 | 3.2 ms, 3.2 ms | 1.5 % (2.5 %) | 4.0 s |" in rendered
    assert "```\nnumber of partitions\n```" in rendered
    assert "Elanus 1.2.3 on 2 processors." in rendered


def test_the_page_shows_the_columns_of_one_dimension_alone() -> None:
    look = msgspec.structs.replace(LOOK, restart_s=None, more={"flush": "3 s"})
    found = Dimension("connections", (Step(16, 0.5, look),), End.BOUND, 16)
    rendered = render_limits(Limits("1", "m", {"connections": found}))
    assert "| count | one more | idle | memory | open files | restart | flush |" in rendered
    assert "| 16 | 0.500 ms | 1.5 % (2.5 %) | 100 MB | 30 |  | 3 s |" in rendered


def test_the_page_says_how_a_trickle_went() -> None:
    went = Trickle(1000, 60.0, 5000, 0, 4.0, 9.0, 30.0, 55.0, 2.5)
    refused = msgspec.structs.replace(went, refused=3, said="memory is full")
    for trickle, expected in ((went, "none was refused"), (refused, "3 were refused")):
        found = Dimension("loaded collections", (), End.BOUND, 1000, trickle=trickle)
        rendered = render_limits(Limits("1", "m", {"loaded collections": found}))
        assert expected in rendered
        assert trickle.said in rendered


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (End.GAVE, "gave at 1,000"),
        (End.BOUND, "did not give by 1,000"),
        (End.TIME, "did not give by 1,000, when its time was over"),
        (End.INTERRUPTED, "did not give by 1,000, when the run was interrupted"),
    ],
)
def test_the_verdict_is_in_words(end: End, expected: str) -> None:
    assert verdict(Dimension("x", (), end, 1000)) == expected


def test_every_dimension_is_explained_and_its_steps_ascend() -> None:
    for name, planned in DIMENSIONS.items():
        assert name.partition(" with ")[0] in ABOUT
        assert sorted(set(planned.counts)) == list(planned.counts)


SCHEMA = CollectionSchema(
    name="rows",
    fields=(
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=4),
    ),
)
VCHANNEL = "by-dev-rootcoord-dml_0_7v0"


def prepare(directory: Path) -> None:
    """Write the metadata of a collection with one flushed segment."""

    async def write(opened: DataDir) -> None:
        meta = SqliteMeta(opened.paths.meta)
        state = DataState(meta)
        await state.start()
        flushed = SegmentInfo(
            SegmentID(9), CollectionID(7), PartitionID(8), VCHANNEL, SegmentState.FLUSHED, 100,
            Timestamp(50), Timestamp(0),
        )  # fmt: skip
        checkpoint = Checkpoint(Timestamp(60), 5, Timestamp(60), 1)
        await state.put([flushed], [Vchannel(VCHANNEL, CollectionID(7), SCHEMA, checkpoint)])
        await meta.close()

    opened = DataDir(directory)
    asyncio.run(write(opened))
    opened.close()


def test_deletes_written_to_a_stopped_server_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lists(opened: DataDir) -> str:
        meta = SqliteMeta(opened.paths.meta)
        state = DataState(meta)
        await state.start()
        await meta.close()
        vchannel = state.vchannel(VCHANNEL)
        assert vchannel is not None
        return vchannel.deltas

    monkeypatch.setattr(deleted, "IN_A_LOG", 1000)
    prepare(tmp_path)
    deleted.add_deletes(tmp_path, 2500, first_key=10)
    opened = DataDir(tmp_path)
    path = asyncio.run(lists(opened))
    opened.close()
    store = LocalStore(tmp_path / "files")
    logs = read_delta_list(store, path)
    tables = [read_delta_log(store, log.file) for log in logs]
    assert [table.num_rows for table in tables] == [1000, 1000, 500]
    keys = [key for table in tables for key in table.column(PRIMARY_KEY_COLUMN).to_pylist()]
    assert sorted(keys) == list(range(10, 2510))


def test_segments_written_to_a_stopped_server_are_complete(tmp_path: Path) -> None:
    async def segments(opened: DataDir) -> list[SegmentInfo]:
        meta = SqliteMeta(opened.paths.meta)
        state = DataState(meta)
        await state.start()
        await meta.close()
        return [info for info in state.segments_of(CollectionID(7)) if info.segment_id != 9]

    prepare(tmp_path)
    add_segments(tmp_path, 3, rows=2, first_key=100)
    opened = DataDir(tmp_path)
    infos = asyncio.run(segments(opened))
    opened.close()
    store = LocalStore(tmp_path / "files")
    keys: list[int] = []
    for info in sorted(infos, key=lambda info: info.segment_id):
        assert (info.state, info.rows, info.partition_id, info.vchannel) == (
            SegmentState.FLUSHED, 2, PartitionID(8), VCHANNEL,
        )  # fmt: skip
        manifest = read_manifest(store, info.manifest)
        assert len(manifest.stats_logs) == 1
        table = read_columns(store, manifest.insert_logs, ["id", "Timestamp"]).to_pydict()
        assert table["Timestamp"] == [50, 50]
        keys += table["id"]
    assert keys == [100, 101, 102, 103, 104, 105]
