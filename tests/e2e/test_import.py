"""Bulk import through the unmodified client: rows of files appear at once, whatever is killed."""

from __future__ import annotations

import json
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Server, until
from pymilvus import BulkInsertState, DataType, MilvusClient, connections, utility
from typer.testing import CliRunner

from elanus.cli.app import app

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]

DIM = 16
ROWS = 6000
DEADLINE_S = 120.0
VECTORS = np.random.default_rng(11).random((ROWS, DIM), dtype=np.float32)


class Importer:
    """The bulk import verbs of the client's older interface, which no newer one has."""

    def __init__(self, server: Server) -> None:
        self.client = server.client()
        self.using = server.uri
        self.directory = server.data_dir / "import"
        self._call(connections.connect, uri=server.uri, alias=server.uri)

    def write(self, name: str, first: int = 0, rows: int = ROWS, **columns: Any) -> str:
        keys = np.random.default_rng(first).permutation(np.arange(first, first + rows))
        table = pa.table({"key": keys, "v": pa.array(list(VECTORS[keys % ROWS]))} | columns)
        pq.write_table(table, self.directory / name, row_group_size=1000)
        return name

    def start(self, name: str, *files: str, **options: Any) -> int:
        return self._call(utility.do_bulk_insert, name, list(files), using=self.using, **options)

    def state(self, task: int) -> BulkInsertState:
        return self._call(utility.get_bulk_insert_state, task, using=self.using)

    def tasks(self, name: str) -> list[BulkInsertState]:
        return self._call(utility.list_bulk_insert_tasks, collection_name=name, using=self.using)

    def done(self, task: int) -> BulkInsertState:
        def ended() -> BulkInsertState | None:
            state = self.state(task)
            over = state.state in (BulkInsertState.ImportCompleted, BulkInsertState.ImportFailed)
            return state if over else None

        return until(ended, DEADLINE_S, "the import ends")

    def count(self, name: str, **options: Any) -> int:
        found = self.client.query(name, output_fields=["count(*)"], consistency_level="Strong", **options)
        return int(found[0]["count(*)"])

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client will drop these verbs one day
            return function(*arguments, **options)


def create(client: MilvusClient, name: str, *, load: bool = True) -> None:
    schema = client.create_schema(enable_dynamic_field=True)
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=DIM)
    index = client.prepare_index_params()
    index.add_index("v", index_type="HNSW", metric_type="L2", params={"M": 8, "efConstruction": 60})
    client.create_collection(
        name, schema=schema, index_params=index if load else None, num_shards=2, consistency_level="Strong"
    )


@pytest.fixture
def importer(shared: Server) -> Importer:
    return Importer(shared)


def test_rows_are_found_when_the_import_is_complete(client: MilvusClient, importer: Importer) -> None:
    create(client, "books")
    client.insert("books", [{"key": 1, "v": VECTORS[0], "color": "red"}])
    client.delete("books", ids=[2])
    files = [
        importer.write("books.parquet", color=["blue"] * ROWS),
        importer.write("more.parquet", ROWS, 500),
    ]
    task = importer.start("books", *files)
    state = importer.done(task)
    assert (state.state_name, state.row_count, state.failed_reason) == ("Completed", ROWS + 500, "")
    assert importer.count("books") == ROWS + 500 + 1, "a delete before the commit spares the rows"
    assert importer.count("books", filter='color == "blue"') == ROWS
    hits = client.search("books", [VECTORS[77]], limit=1, output_fields=["key", "color"], filter="key < 6000")
    assert hits[0][0]["entity"] == {"key": 77, "color": "blue"}
    client.delete("books", ids=[77])
    assert importer.count("books") == ROWS + 500
    assert [t.task_id for t in importer.tasks("books")] == [task]


def test_rows_of_all_formats_are_found(client: MilvusClient, importer: Importer) -> None:
    """As the client's own writers leave them: JSON with the key rows, a directory of NumPy columns, CSV."""
    create(client, "books")
    rows = [{"key": key, "v": VECTORS[key].tolist(), "color": "blue"} for key in range(30)]
    contents = {
        "rows.json": json.dumps({"rows": rows[:10]}),
        "rows.jsonl": "\n".join(map(json.dumps, rows[10:20])),
        "rows.csv": "key,v,color\n" + "".join(f'{r["key"]},"{r["v"]}",blue\n' for r in rows[20:]),
    }
    for name, content in contents.items():
        (importer.directory / name).write_text(content)
    (importer.directory / "columns").mkdir()
    np.save(importer.directory / "columns" / "key.npy", np.arange(30, 40))
    np.save(importer.directory / "columns" / "v.npy", VECTORS[30:40])
    state = importer.done(importer.start("books", *contents, "columns/key.npy", "columns/v.npy"))
    assert (state.state_name, state.row_count, state.failed_reason) == ("Completed", 40, "")
    assert importer.count("books", filter='color == "blue"') == 30
    hits = client.search("books", VECTORS[:40].tolist(), limit=1)
    assert [(found[0]["key"], found[0]["distance"]) for found in hits] == [(key, 0.0) for key in range(40)]


def test_a_file_that_does_not_fit_leaves_nothing(client: MilvusClient, importer: Importer) -> None:
    create(client, "books")
    good = importer.write("good.parquet")
    vectors = [[0.0] * DIM] * 1500 + [[0.0] * (DIM - 1)]
    pq.write_table(pa.table({"key": range(1501), "v": vectors}), importer.directory / "bad.parquet", 1000)
    state = importer.done(importer.start("books", good, "bad.parquet"))
    assert state.state == BulkInsertState.ImportFailed
    assert state.failed_reason == (
        "bad.parquet, row group 1, row 1500: field v has 15 values, its dimension asks for 16"
    )
    outside = importer.done(importer.start("books", "absent.parquet"))
    assert outside.failed_reason.startswith("absent.parquet: no such file in the import directory")
    assert importer.count("books") == 0


@pytest.mark.kills
@pytest.mark.parametrize("victim", ["online", pytest.param("pipeline", marks=pytest.mark.long)])
def test_a_kill_in_an_import_loses_and_doubles_nothing(
    new_server: Callable[..., Server], tmp_path: Path, victim: str
) -> None:
    server = new_server()
    server.start().wait_for_spark()
    importer = Importer(server)
    create(importer.client, "books")
    task = importer.start("books", *[importer.write(f"{n}.parquet", n * ROWS) for n in range(8)])
    until(lambda: importer.state(task).state == BulkInsertState.ImportStarted, DEADLINE_S, "it runs", 0.001)
    if victim == "pipeline":
        server.kill_pipeline()
    else:
        server.kill()
        server.start()
        importer = Importer(server)
    state = importer.done(task)
    assert (state.state_name, state.row_count) == ("Completed", 8 * ROWS)
    assert importer.count("books") == 8 * ROWS
    server.stop()


def test_a_backup_under_writes_is_of_one_moment_and_comes_back(
    client: MilvusClient, shared: Server, tmp_path: Path
) -> None:
    """One writer writes keys in ascending order, so whatever moment the backup is of, it has the first n."""
    create(client, "saved")
    client.create_alias("saved", "nick")
    client.insert("saved", [{"key": k, "v": VECTORS[k].tolist()} for k in range(500)])
    client.delete("saved", ids=[7, 8])
    over = threading.Event()
    written = [500]

    def write() -> None:
        while not over.is_set() and written[0] < ROWS:
            keys = range(written[0], written[0] + 10)
            client.insert("saved", [{"key": k, "v": VECTORS[k].tolist()} for k in keys])
            written[0] += 10

    def run(*arguments: str) -> None:
        result = CliRunner().invoke(app, [*arguments, "--uri", shared.uri])
        assert result.exit_code == 0, result.output

    writer = threading.Thread(target=write)
    writer.start()
    try:
        run("backup", str(tmp_path), "--collection", "saved")
    finally:
        over.set()
        writer.join()
    run("backup", str(tmp_path), "--verify")
    client.drop_alias("nick")
    client.drop_collection("saved")
    run("restore", str(tmp_path), "--collection", "saved")
    run("restore", str(tmp_path), "--collection", "saved", "--as", "again")
    for name in ("nick", "again"):
        client.load_collection(name)
        rows = client.query(name, filter="", output_fields=["key"], limit=ROWS, consistency_level="Strong")
        keys = sorted(row["key"] for row in rows)
        assert keys == [k for k in range(len(keys) + 2) if k not in (7, 8)]
        assert 498 <= len(keys) <= written[0]
        (hits,) = client.search(name, [VECTORS[3].tolist()], limit=1, consistency_level="Strong")
        assert hits[0]["key"] == 3
    client.flush("again")
    until(lambda: not client.describe_index("again", "v")["pending_index_rows"], DEADLINE_S, "it is indexed")
    indexed = client.describe_index("again", "v")["indexed_rows"]
    run("backup", str(tmp_path), "--collection", "again")
    run("restore", str(tmp_path), "--collection", "again", "--as", "third")
    described = client.describe_index("third", "v")
    assert (described["indexed_rows"], described["pending_index_rows"]) == (indexed, 0), "at once, unbuilt"
    assert list(shared.data_dir.rglob("index_files/**/a*-index")), "the files of the backup are its indexes"
    client.load_collection("third")
    (hits,) = client.search("third", [VECTORS[3].tolist()], limit=1, consistency_level="Strong")
    assert hits[0]["key"] == 3


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module


class OfChroma:
    """The calls of a chromadb collection that the page makes."""

    def count(self) -> int:
        return 2500

    def get(self, limit: int, offset: int, include: list[str]) -> dict[str, list[Any]]:
        numbers = range(offset, min(offset + limit, self.count()))
        return {
            "ids": [str(number) for number in numbers],
            "embeddings": [VECTORS[number][:4] for number in numbers],
            "documents": [None if number % 2 else f"film {number}" for number in numbers],
            "metadatas": [{"price": number % 10} if number % 3 else None for number in numbers],
        }


class OfLance:
    """The calls of a lancedb table that the page makes."""

    def to_arrow(self) -> pa.Table:
        vectors = pa.array([list(v[:4]) for v in VECTORS[:2500]], pa.list_(pa.float32(), 4))
        return pa.table({"id": range(2500), "vector": vectors, "price": [n % 10 for n in range(2500)]})


COPIED = """id,vector,title,price
1,"[1,2,3,4.5]",The Sea,3.5
2,"[0,1e-05,-2,1]","A ""quoted"", title",
3,"[0,0,1,0]",,7
"""
"""As PostgreSQL writes the rows of the page."""
NARROW = {
    "index = client": 'schema.add_field("narrow", DataType.FLOAT16_VECTOR, dim=4)',
    "client.create_co": 'index.add_index("narrow", "IVF_PQ", metric_type="L2", params={"nlist": 1, "m": 2})',
}
"""Before which calls of the page a field is added that the client reads in another form than it writes."""


@pytest.mark.parametrize(
    ("part", "rows", "filter_", "matching"),
    [
        ("Chroma", 2500, "price == 4", 167),
        ("pgvector", 3, "title is null", 1),
        ("LanceDB", 2500, "price == 4", 250),
        ("milvus-lite and Milvus", 3, "price is null", 1),
    ],
)
def test_the_page_for_those_who_come_from_elsewhere(
    shared: Server,
    client: MilvusClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    rows: int,
    filter_: str,
    matching: int,
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    (text,) = [text for text in page.split("\n## ") if text.startswith(part)]
    monkeypatch.chdir(tmp_path)
    chroma, lance = OfChroma(), OfLance()
    store = SimpleNamespace(get_collection=lambda name: chroma, open_table=lambda name: lance)
    monkeypatch.setitem(sys.modules, "chromadb", _module("chromadb", PersistentClient=lambda path: store))
    monkeypatch.setitem(sys.modules, "lancedb", _module("lancedb", connect=lambda path: store))
    Path("films.csv").write_text(COPIED)
    if part.startswith("milvus"):  # copied to another database of the same server
        (block,) = re.findall(
            r"```python\n(.*?)```", page[page.index("## pgvector") : page.index("## LanceDB")], re.DOTALL
        )
        for before, more in NARROW.items():
            block = block.replace(before, f"{more}\n{before}")
        exec(block.replace("http://127.0.0.1:19530", shared.uri), {})
        found = [
            {"id": n, "vector": VECTORS[n][:4], "title": "t", "price": [None, 1.0, 2.0][n]}
            | {"narrow": VECTORS[n][:4].astype(np.float16)}
            for n in range(3)
        ]
        client.insert("films", found)
        client.create_database("elsewhere")
        text = text.replace('MilvusClient("films.db")', f'MilvusClient("{shared.uri}")')
        text = text.replace(
            'MilvusClient("http://127.0.0.1:19530")', f'MilvusClient("{shared.uri}", db_name="elsewhere")'
        )
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            exec(block.replace("http://127.0.0.1:19530", shared.uri), {})
        else:
            command = block.replace("elanus-data", str(shared.data_dir)).split()
            done = CliRunner().invoke(app, command[1:])
            assert done.exit_code == 0, done.output
    moved = MilvusClient(shared.uri, db_name="elsewhere") if part.startswith("milvus") else client
    (count,) = moved.query("films", output_fields=["count(*)"], consistency_level="Strong")
    (some,) = moved.query("films", filter=filter_, output_fields=["count(*)"], consistency_level="Strong")
    assert (count["count(*)"], some["count(*)"]) == (rows, matching)
    if part.startswith("milvus"):
        copied = moved.describe_index("films", "narrow")
        assert (copied["index_type"], copied["m"], copied["nlist"]) == ("IVF_PQ", "2", "1")
        moved.drop_collection("films")
        moved.drop_database("elsewhere")
        moved.close()
