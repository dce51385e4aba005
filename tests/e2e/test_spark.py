"""The page about Spark, run as it stands, and a frame that keeps its version."""

from __future__ import annotations

import os
import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Server, until
from pymilvus import DataType, MilvusClient
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from spark_classes import lend

from elanus.core.limits import IMPORT_FILES_MAX
from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "spark.md"
pytestmark = [pytest.mark.e2e, pytest.mark.jvm]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = dict(os.environ)
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "connector"), *([path] if path else [])])
    settings = SparkSettings(master="local[2]", driver_memory_mb=512)
    session = PipelineSession.start(settings, lend(tmp_path_factory.mktemp("spark")))
    yield SparkSession(session.context)
    session.stop()
    os.environ.clear()
    os.environ.update(before)


def frame(spark: SparkSession, server: Server, name: str, **options: str) -> Any:
    return spark.read.format("elanus").options(uri=server.uri, collection=name, **options).load()


def test_spark_finds_the_format_by_itself(shared: Server, client: MilvusClient, spark: SparkSession) -> None:
    client.create_collection("found", dimension=2, metric_type="L2")
    client.insert("found", [{"id": n, "vector": [n, 0]} for n in range(3)])
    assert frame(spark, shared, "found", columns="id").count() == 3


@pytest.mark.filterwarnings("ignore::pymilvus.decorators.PyMilvusDeprecationWarning")
def test_the_page_and_a_version_that_stays(
    shared: Server, client: MilvusClient, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"spark": spark, "import_directory": shared.data_dir / "import"}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(example.replace("http://127.0.0.1:19530", shared.uri), names)
    shown = capsys.readouterr().out
    assert shown.startswith("Completed 10000 \n")
    assert "|-- vector: array (nullable = false)" in shown
    hits = [(0, 1, 0), (0, 2, 1), (100, 1, 100), (100, 2, 101), (200, 1, 200), (200, 2, 201)]
    changes = "[('delete', 51), ('insert', 10150)]"
    found = f"\n10099\n3.0 14\n{changes}\n{hits}\n101 [1, 2]\nid in [1, 2]\nTrue True\n3\n"
    assert shown.endswith(found)

    docs = names["docs"]
    client.delete("docs", ids=[3, 4])
    client.insert("docs", [{"id": 70_000, "vector": [0.0] * 4, "color": "new"}])
    assert docs.count() == 10_099, "every action reads the version of the load"
    now = frame(spark, shared, "docs", columns="id")
    assert now.where("id in (3, 4, 5, 70000)").orderBy("id").collect() == [(5,), (70_000,)]
    assert now.count() == 10_098
    with pytest.raises(Exception, match="collection not found"):
        frame(spark, shared, "nothing")


def test_the_page_about_sql(
    shared: Server, client: MilvusClient, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"spark": spark}
    page = (DOCS / "spark-sql.md").read_text()
    for example, expected in re.findall(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", page, re.DOTALL):
        exec(example.replace("http://127.0.0.1:19530", shared.uri), names)
        assert capsys.readouterr().out == expected
    spark.sql("drop table paint_table")


@pytest.mark.filterwarnings("ignore::pymilvus.decorators.PyMilvusDeprecationWarning")
def test_the_example_with_digits(
    shared: Server,
    client: MilvusClient,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "spark_digits.py"))
    example["main"](shared.uri, shared.data_dir / "import", tmp_path)
    shown = capsys.readouterr().out
    for line in (
        "imported 9,500 pictures",
        "upserted 2,200 pictures",
        "9,800 pictures, 0 of them without a label",
        "deleted 300 copies, 300 pictures in all",
        "in DuckDB: 0: 947, 1: 1,077, 2: 936, 3: 978, 4: 942, 5: 824, 6: 963, 7: 1,014, 8: 887, 9: 932",
    ):
        assert line in shown.splitlines()
    (share,) = re.findall(r"recognized (\d+\.\d)% of 500 new pictures", shown)
    assert float(share) > 90
    (recall,) = re.findall(r"^. (\d\.\d+) .* nprobe=32$", shown, re.MULTILINE)
    assert float(recall) > 0.99
    for name in ("digits-recognized.svg", "digits-recall.svg"):
        assert "<svg" in (tmp_path / name).read_text()


def test_a_batch_that_is_replayed_adds_nothing(
    shared: Server, client: MilvusClient, spark: SparkSession, tmp_path: Path
) -> None:
    """After a crash between a commit and Spark's own note of it: the checkpoint lacks the note."""
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    index = client.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection("streamed", schema=schema, index_params=index, consistency_level="Strong")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def add(first: int) -> None:
        rows = spark.range(first, first + 100).selectExpr("id", "array(float(id), 0f) AS v")
        rows.coalesce(2).write.mode("append").parquet(str(source))

    def stream() -> None:
        frame = spark.readStream.schema("id long, v array<float>").parquet(str(source))
        query = frame.writeStream.format("elanus").trigger(availableNow=True)
        query = query.options(uri=shared.uri, collection="streamed", checkpointLocation=str(checkpoint))
        assert query.start().awaitTermination(120)

    def count() -> int:
        return int(client.query("streamed", output_fields=["count(*)"])[0]["count(*)"])

    add(0)
    stream()
    until(lambda: count() == 100, 30, "the first batch")
    for note in (checkpoint / "commits").iterdir():
        note.unlink()
    add(100)
    stream()
    until(lambda: count() == 200, 30, "both batches, each once")
    assert list((shared.data_dir / "import").rglob("spark-writes/*")) == []
    assert client.query("streamed", filter="id == 150")[0]["v"] == [150.0, 0.0]


def test_a_new_query_at_the_checkpoint_of_an_old_one_is_refused(
    shared: Server, client: MilvusClient, spark: SparkSession, tmp_path: Path
) -> None:
    """Also if that wrote batch 0 only, of which the new one's would be a repetition by its number."""
    client.create_collection("begun_again", dimension=2, consistency_level="Strong")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def stream(first: int, **options: str) -> None:
        spark.range(first, first + 10).selectExpr("id", "array(1f, 0f) AS vector").write.parquet(str(source))
        frame = spark.readStream.schema("id long, vector array<float>").parquet(str(source))
        query = frame.writeStream.format("elanus").trigger(availableNow=True)
        query = query.options(uri=shared.uri, collection="begun_again", **options)
        assert query.start(checkpointLocation=str(checkpoint)).awaitTermination(120)

    stream(0)
    for directory in (source, checkpoint):
        shutil.rmtree(directory)
    with pytest.raises(Exception, match=r"batch 0 of that name already by query .*'stream_id'"):
        stream(100)
    for directory in (source, checkpoint):
        shutil.rmtree(directory)
    stream(200, stream_id="another")

    def is_written() -> bool:
        keys = {row["id"] for row in client.query("begun_again", filter="id >= 0")}
        return keys == {*range(10), *range(200, 210)}

    until(is_written, 30, "the rows of the first and the last query are loaded, and no others")


def test_a_write_that_does_not_fit_leaves_nothing(
    shared: Server, client: MilvusClient, spark: SparkSession
) -> None:
    client.create_collection("narrow", dimension=2, metric_type="L2", consistency_level="Strong")
    rows = spark.range(10).selectExpr("id", "array(1f, 2f, 3f) AS vector")
    write = rows.write.format("elanus").options(uri=shared.uri, collection="narrow")
    with pytest.raises(Exception, match="has 3 values, its dimension asks for 2"):
        write.mode("append").save()
    with pytest.raises(Exception, match="name it in the option partition"):
        write.mode("overwrite").save()
    texts = spark.range(10).selectExpr("id", "'one' AS vector").write.format("elanus")
    with pytest.raises(Exception, match=r"column vector has type string, .*: give lists of 2 floats"):
        texts.options(uri=shared.uri, collection="narrow").mode("append").save()
    assert client.query("narrow", output_fields=["count(*)"])[0]["count(*)"] == 0


@pytest.mark.long
def test_a_write_may_have_more_partitions_than_an_import_has_names(
    shared: Server, client: MilvusClient, spark: SparkSession
) -> None:
    client.create_collection("scattered", dimension=2, metric_type="L2", consistency_level="Strong")
    parts = IMPORT_FILES_MAX + 1
    rows = spark.range(parts, numPartitions=parts).selectExpr("id", "array(1f, 2f) AS vector")
    rows.write.format("elanus").options(uri=shared.uri, collection="scattered").mode("append").save()

    def count() -> int:
        return int(client.query("scattered", output_fields=["count(*)"])[0]["count(*)"])

    until(lambda: count() == parts, 60, "one row of each partition")
    assert list((shared.data_dir / "import").rglob("spark-writes/*")) == []


def test_an_overwrite_replaces_a_partition_and_the_stream_of_changes_has_it(
    shared: Server, client: MilvusClient, spark: SparkSession, tmp_path: Path
) -> None:
    client.create_collection("parted", dimension=2, metric_type="L2", consistency_level="Strong")
    for partition in ("old", "other"):
        client.create_partition("parted", partition)
    client.insert("parted", [{"id": n, "vector": [n, 0.0]} for n in range(10)], partition_name="old")
    client.insert("parted", [{"id": 100 + n, "vector": [n, 0.0]} for n in range(10)], partition_name="other")
    rows = spark.range(5, 8).selectExpr("id", "array(1f, 2f) AS vector")
    place = {"uri": shared.uri, "collection": "parted"}
    write = rows.write.format("elanus").mode("overwrite").options(**place, partition="old", write_id="w")
    write.option("wait_served_s", 60).save()

    def ids(partition: str) -> list[int]:
        found = client.query("parted", filter="id >= 0", partition_names=[partition], output_fields=["id"])
        return sorted(row["id"] for row in found)

    assert ids("old") == [5, 6, 7]
    assert ids("other") == list(range(100, 110))
    since = {"changes_from": "0", "columns": "id", "keep_as": "copy"}
    stream = spark.readStream.format("elanus").options(**place, **since).load()
    query = stream.writeStream.format("parquet").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.start(str(tmp_path / "changes")).awaitTermination(120)
    changes = spark.read.parquet(str(tmp_path / "changes"))
    kinds = [row["_change_type"] for row in changes.collect()]
    assert (kinds.count("insert"), set(kinds)) == (23, {"insert", "delete"})


def test_a_frame_of_a_table_is_written_with_the_options_of_the_write(
    shared: Server, client: MilvusClient, spark: SparkSession
) -> None:
    for name in ("read_from", "written_to"):
        client.create_collection(name, dimension=2, metric_type="L2", consistency_level="Strong")
    client.insert("read_from", [{"id": n, "vector": [n, 0.0]} for n in range(10)])
    options = f"uri '{shared.uri}', collection 'read_from', filter 'id < 3'"
    spark.sql(f"create table first_rows using elanus options ({options})")
    rows = spark.table("first_rows").where("id > 0")
    write = rows.write.format("elanus").options(uri=shared.uri, collection="written_to")
    write.mode("append").save()
    spark.sql(f"create table other using elanus options (uri '{shared.uri}', collection 'written_to')")
    spark.sql("insert into other select * from first_rows where id = 0")  # the names and types are the same
    with pytest.raises(AnalysisException, match="does not say which table these rows are for"):
        spark.sql(f"create table third using elanus options ({options}) as select * from other")
    rows.where("id < 0").write.format("elanus").options(uri=shared.uri, collection="written_to").saveAsTable(
        "third"
    )
    with pytest.raises(AnalysisException, match=r"a query has made .* does not know its collection"):
        spark.table("third").count()
    for name in ("first_rows", "other", "third"):
        spark.sql(f"drop table {name}")

    def ids() -> list[int]:
        return sorted(r["id"] for r in client.query("written_to", filter="id >= 0", output_fields=["id"]))

    until(lambda: ids() == [0, 1, 2], 30, "the rows of the table that were asked for")
