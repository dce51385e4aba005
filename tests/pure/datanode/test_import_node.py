"""An import on a data node: survey, patterns, what an earlier try has done, and rows that do not fit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from import_bench import ROWS, SCHEMA, Node, Spark

from elanus.core.errors import InvalidParameter, Unavailable
from elanus.core.ids import CollectionID, PartitionID, TaskID
from elanus.core.imports import CsvFormat, WriteMode
from elanus.core.timestamps import Timestamp
from elanus.pipeline import import_plan
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_segments import SegmentsWriter
from elanus.pipeline.import_sources import tables
from elanus.pipeline.import_survey import SurveyPlan, survey_job, survey_task
from elanus.storage.objects import open_store


async def test_a_lost_job_goes_on_where_it_was(tmp_path: Path) -> None:
    """Driver, data node or coordinator: the next try finds the outcomes in the object store."""
    node = Node(tmp_path, Spark(lost=2))
    for number in range(4):
        node.write(f"{number}.parquet", number * ROWS)
    names = [f"{number}.parquet" for number in range(4)]
    with pytest.raises(Unavailable, match="run again"):
        await node.run(*names)
    assert len(node.spark.imports) == 2

    after = Node(tmp_path, ids=node.ids)
    outcome = await after.run(*names, attempt=6)
    assert [plan.parts[0].file for plan in after.spark.imports] == names[2:], "two tasks were done already"
    assert node.keys(outcome.segments) == Counter(range(4 * ROWS))
    ids = [segment.segment_id for segment in outcome.segments]
    assert len(set(ids)) == len(ids)

    third = Node(tmp_path, ids=node.ids)
    assert (await third.run(*names, attempt=7)).rows == 4 * ROWS
    assert third.spark.imports == []


async def test_workers_that_join_take_part_in_the_next_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_plan, "PART_BYTES_MIN", 1)
    node = Node(tmp_path, Spark(slots=1))
    node.write("rows.parquet", 0, 2000)  # row groups of 500 rows
    imports = node.imports()
    await imports.import_files(node.order("rows.parquet", segment_rows_max=2000))
    assert len(node.spark.imports) == 1
    node.spark.slots = 4
    await imports.import_files(node.order("rows.parquet", segment_rows_max=2000, task_id=TaskID(4)))
    assert len(node.spark.imports) == 1 + 4


async def test_another_import_and_a_changed_file_are_not_taken_for_what_was_done(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number in range(2):
        node.write(f"{number}.parquet", number * ROWS)
    names = ["0.parquet", "1.parquet"]
    await node.run(*names)
    node.write("1.parquet", 500)
    again = Node(tmp_path, ids=node.ids)
    outcome = await again.run(*names, attempt=6)
    assert [plan.parts[0].file for plan in again.spark.imports] == ["1.parquet"]
    assert node.keys(outcome.segments) == Counter([*range(ROWS), *range(500, 500 + ROWS)])
    for changes in ({"first_attempt": 6}, {"task_id": TaskID(4)}, {"partition_id": PartitionID(9)}):
        other = Node(tmp_path, ids=node.ids)
        await other.run(*names, attempt=7, **changes)
        assert len(other.spark.imports) == (1 if "first_attempt" in changes else 2)


async def test_patterns_and_directories_are_resolved(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number, name in enumerate(["a/1.parquet", "a/b/2.parquet", "c.parquet", "rejects/3/x.parquet"]):
        node.write(name, number * ROWS)
    (tmp_path / "import" / "a" / "notes.txt").touch()
    outcome = await node.run("a/", "c.parquet", "**/2.parquet")
    assert node.keys(outcome.segments) == Counter(range(3 * ROWS))
    names = ("a/1.parquet", "a/b/2.parquet", "c.parquet")
    sizes = [(tmp_path / "import" / name).stat().st_size for name in names]
    assert outcome.files_bytes == (sizes[0] + sizes[1], sizes[2], 0), "a file counts once"
    with pytest.raises(InvalidParameter, match=r"no file in the import directory matches b/\*\.json"):
        await node.run("b/*.json")


async def test_a_list_names_as_many_files_as_there_are(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number, name in enumerate(["a/1.parquet", "a/2.parquet", "c.parquet"]):
        node.write(name, number * ROWS)
    (tmp_path / "import" / "some.files").write_text("a/2.parquet\nc.parquet\n")
    found = await node.run("some.files", "c.parquet")
    assert node.keys(found.segments) == Counter(range(ROWS, 3 * ROWS)), "each file once"
    for content, why in [
        (b"", "names no file"),
        (b"a/\n", "has the line 'a/': a list has paths of files only"),
        (b"../etc/a.parquet", "whose parts do not begin with a dot"),
        (b"\xff.parquet", "no list of files in UTF-8"),
    ]:
        (tmp_path / "import" / "wrong.files").write_bytes(content)
        with pytest.raises(InvalidParameter, match=why):
            await node.run("wrong.files")
    with pytest.raises(InvalidParameter, match=r"list of files gone\.files is not in the import directory"):
        await node.run("gone.files")


async def test_csv_files_are_read_in_the_format_of_the_order(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("0.parquet", 0)
    (tmp_path / "import" / "a.csv").write_text('id;v\n7;"[7,1]"\n8;"[8,1]"\n')
    csv = CsvFormat(";")
    assert node.keys((await node.run("a.csv", csv=csv)).segments) == Counter([7, 8])
    (deletes,) = (await node.run("a.csv", attempt=6, mode=WriteMode.DELETE, csv=csv)).deltas
    assert deletes.file.rows == 2
    with pytest.raises(InvalidParameter):
        await node.run("a.csv", attempt=7)


async def test_rows_that_do_not_fit_are_listed_with_their_reasons(tmp_path: Path) -> None:
    node = Node(tmp_path)
    lines = [json.dumps({"id": n, "v": [n, 1] if n % 4 else [n]}) for n in range(12)]
    lines[5] = "no JSON"
    (tmp_path / "import").mkdir()
    (tmp_path / "import" / "a.jsonl").write_text("\n".join(lines))
    node.write("b.parquet", 100)
    outcome = await node.run("a.jsonl", "b.parquet", rejects_max=4)
    fit = [n for n in range(12) if n % 4 and n != 5]
    assert node.keys(outcome.segments) == Counter([*fit, *range(100, 100 + ROWS)])
    assert outcome.rejected == 4
    (file,) = (tmp_path / "import" / "rejects" / "3").iterdir()
    rejected = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["file"], one["row"]) for one in rejected] == [("a.jsonl", n) for n in (0, 4, 5, 8)]
    assert "row 4: field v has 1 values" in rejected[1]["reason"]
    assert "row 5 is no JSON object" in rejected[2]["reason"]
    again = Node(tmp_path, ids=node.ids)
    assert (await again.run("a.jsonl", "b.parquet", attempt=6, rejects_max=4)).rejected == 4
    with pytest.raises(
        InvalidParameter, match=r"more than 3 rows do not fit \(max_rejects\); the last one: "
    ):
        await node.run("a.jsonl", rejects_max=3)
    with pytest.raises(InvalidParameter, match=r"a\.jsonl, row 5 is no JSON object"):
        await node.run("a.jsonl")


async def test_the_limit_of_refused_rows_holds_for_all_tasks_together(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "import").mkdir()
    for name in ("a.json", "b.json"):
        rows = [{"id": n, "v": [1.0] * (1 + n % 2)} for n in range(6)]
        (tmp_path / "import" / name).write_text(json.dumps(rows))
    with pytest.raises(InvalidParameter, match=r"more than 4 rows do not fit"):
        await node.run("a.json", "b.json", rejects_max=4)
    assert (await node.run("a.json", "b.json", rejects_max=6)).rejected == 6


def test_thousands_of_files_are_surveyed_in_tasks_of_many(tmp_path: Path) -> None:
    found = list(tables([f"{number}.parquet" for number in range(5000)]))
    job = survey_job(TaskID(3), found, SCHEMA, tmp_path.as_uri(), slots=2)
    assert len(job.plans) == 8
    assert [table for plan in job.plans for table in plan.tables] == found
    assert len(survey_job(TaskID(3), found[:9], SCHEMA, tmp_path.as_uri(), slots=16).plans) == 2


async def test_texts_are_not_read_before_the_tasks_that_import_them(tmp_path: Path) -> None:
    """A JSON list was decoded twice, and lines were counted first."""
    node = Node(tmp_path)
    (tmp_path / "import").mkdir()
    rows = [{"id": n, "v": [1.0, 2.0]} for n in range(ROWS)]
    names = ["a.json", "a.jsonl", "a.csv"]
    (tmp_path / "import" / "a.json").write_text(json.dumps(rows))
    (tmp_path / "import" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "import" / "a.csv").write_text("id,v\n" + "".join(f'{n},"[1,2]"\n' for n in range(ROWS)))
    for name in names:
        (tmp_path / "import" / name).chmod(0o600)
    read: list[str] = []
    store = open_store((tmp_path / "import").as_uri())
    opened = type(store).open_unmapped

    def noted(self: Any, path: str) -> Any:
        read.append(path)
        return opened(self, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store), "open_unmapped", noted)
        plan = SurveyPlan(SCHEMA, tuple(tables(names)), store.url)
        surveyed = survey_task(plan)
        assert read == []
    assert all(ROWS <= table.rows <= 5 * ROWS for table in surveyed), "a bound that is near"
    assert node.keys((await node.run(*names)).segments) == Counter(dict.fromkeys(range(ROWS), 3))


@pytest.mark.parametrize("format_", ["parquet", "jsonl"])
def test_a_task_holds_as_much_for_many_rows_as_for_few(tmp_path: Path, format_: str) -> None:
    """Small row groups of one large file: memory follows the task's limits and not the file."""
    peaks = []
    for rows in (4_000, 20_000):
        node, name = Node(tmp_path / str(rows)), f"a.{format_}"
        node.write("a.parquet", 0, rows)
        directory = tmp_path / str(rows)
        if format_ == "jsonl":
            lines = (json.dumps({"id": n, "v": [n, 1]}) + "\n" for n in range(rows))
            (directory / "import" / name).write_text("".join(lines))
        source = open_store((directory / "import").as_uri())
        plan = ImportPlan(
            attempt=5,
            collection_id=CollectionID(7),
            partition_id=PartitionID(8),
            schema=SCHEMA,
            vchannels=("by-dev-rootcoord-dml_0_7v0",),
            parts=tuple(survey(source, tables([name]), SCHEMA)),
            first_id=1000,
            rows_max=1000,
            bytes_max=1 << 30,
            stamp=Timestamp(99),
            source_url=source.url,
            store_url=(directory / "files").as_uri(),
            scratch_dir=str(directory),
        )
        writer, peak = SegmentsWriter(plan, open_store(plan.store_url), directory, "a5-x"), 0
        before = pa.total_allocated_bytes()
        for batch in import_rows(plan, source):
            for start in range(0, batch.num_rows, 100):
                writer.add(batch.slice(start, 100))
            peak = max(peak, pa.total_allocated_bytes() - before)
        writer.write_out()
        assert writer.rows == rows
        peaks.append(peak)
    assert peaks[1] < 2 * peaks[0] + (1 << 20)
