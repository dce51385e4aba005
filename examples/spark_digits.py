"""Handwritten digits through Spark: imported, corrected by a stream, queried, searched, tidied, measured.

    python examples/spark_digits.py http://127.0.0.1:19530 elanus-data/import

Needs `pip install 'elanus[demo,duckdb]'`, a running server (`elanus serve --data-dir elanus-data`) and its
import directory. The arguments above are the defaults; a third one is the directory for the pictures, `out`.
It prints what it finds and draws two pictures: which digits new pictures are taken for, and what searches
find under several settings.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from pymilvus import DataType, MilvusClient, connections, utility
from pyspark.sql import DataFrame, SparkSession
from rich.progress import Progress

import elanus
from elanus.spark import attach, knn_join, near_duplicates, recall_report, register

NAME = "digits"
DIM = 14 * 14
UNKNOWN = -1
COPIES_FROM = 1_000_000
NEW = 500
"""So many pictures are kept back, to be recognized."""


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Pictures of half the resolution, a row each, and the digits they show."""
    data = np.load(Path(__file__).parent / "data" / "mnist-small.npz")
    whole = data["train"].astype(np.float32).reshape(-1, 14, 2, 14, 2)
    return whole.mean(axis=(2, 4)).reshape(-1, DIM), data["train_label"].astype(np.int64)


def write(file: Path, ids: np.ndarray, found: np.ndarray, digits: np.ndarray) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), DIM)
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": ids, "picture": vectors, "digit": digits}), file)


def create(client: MilvusClient) -> None:
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("picture", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field("digit", DataType.INT64)
    index = client.prepare_index_params()
    index.add_index("picture", index_type="IVF_FLAT", metric_type="L2", params={"nlist": 64})
    if client.has_collection(NAME):
        client.drop_collection(NAME)
    client.create_collection(NAME, schema=schema, index_params=index, consistency_level="Strong")


def bulk_import(uri: str, file: str) -> int:
    """Import a file of the import directory behind a progress bar. Returns the number of rows."""
    connections.connect(uri=uri)
    task = utility.do_bulk_insert(NAME, [file])
    with Progress() as progress:
        bar = progress.add_task("importing", total=100)
        while (state := utility.get_bulk_insert_state(task)).state_name != "Completed":
            if state.state_name.startswith("Failed"):
                raise RuntimeError(state.failed_reason)
            progress.update(bar, completed=state.progress)
            time.sleep(0.1)
        progress.update(bar, completed=100)
    connections.disconnect("default")
    return int(state.row_count)


def follow(spark: SparkSession, source: Path, checkpoint: Path, server: dict[str, str]) -> int:
    """Upsert the rows of a directory's files, each once however often this runs. Returns their number."""
    rows = spark.readStream.schema("id long, picture array<float>, digit long").parquet(str(source))
    sink = rows.writeStream.format("elanus").options(**server, collection=NAME, operation="upsert")
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    with Progress() as progress:
        bar = progress.add_task("streaming", total=len(list(source.iterdir())))
        while not query.awaitTermination(0.2):
            progress.update(bar, completed=len(query.recentProgress))
        progress.update(bar, completed=len(list(source.iterdir())))
    return int(sum(batch["numInputRows"] for batch in query.recentProgress))


def recognized(spark: SparkSession, server: dict[str, str], found: np.ndarray) -> DataFrame:
    """The digit that most of the five nearest pictures show, for each picture: id, digit."""
    ids = pa.array(range(len(found)), pa.int64())
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), DIM)
    queries = spark.createDataFrame(pa.table({"id": ids, "vector": vectors}))
    hits = knn_join(spark, NAME, queries, field="picture", k=5, params={"nprobe": 8}, **server)
    hits.createOrReplaceTempView("hits")
    return spark.sql(
        f"""select query_id as id, mode(digit) as digit
        from hits join {NAME} on {NAME}.id = hits.key group by query_id order by query_id"""
    )


def plot_confusion(true: np.ndarray, guessed: list[int], file: Path) -> None:
    """Which digits (rows) are taken for which (columns)."""
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (true, guessed), 1)
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.add_subplot(
        xlabel="digit of most of the 5 nearest", ylabel="digit", title=f"{NEW} new pictures"
    )
    axes.imshow(np.sqrt(counts), cmap="Blues")
    for row, column in zip(*np.nonzero(counts), strict=True):
        color = "white" if row == column else "black"
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=color, fontsize=8)
    axes.set(xticks=range(10), yticks=range(10))
    figure.savefig(file)


def main(uri: str, import_directory: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    server = {"uri": uri}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    register(spark)
    all_pictures, all_digits = pictures()
    known, digits = all_pictures[:-NEW], all_digits[:-NEW]
    ids = np.arange(len(known))

    # Parquet -> import. Of every fifth picture nobody has said yet what it shows.
    create(MilvusClient(uri))
    late = ids % 5 == 0
    write(import_directory / "digits" / "all.parquet", ids, known, np.where(late, UNKNOWN, digits))
    print(f"imported {bulk_import(uri, 'digits/all.parquet'):,} pictures")

    # The labels arrive in two files, with some pictures that were scanned twice, a little brighter.
    with TemporaryDirectory() as scratch:
        arriving = Path(scratch) / "arriving"
        write(arriving / "labels.parquet", ids[late], known[late], digits[late])
        write(arriving / "again.parquet", COPIES_FROM + ids[:300], known[:300] + 1, digits[:300])
        print(f"upserted {follow(spark, arriving, Path(scratch) / 'checkpoint', server):,} pictures")

    # SQL over one pinned version, read by Spark from the files: no byte of a vector.
    with attach(spark, NAME, **server):
        counts = spark.sql(f"select count(*), count_if(digit = {UNKNOWN}) from {NAME}").head()
        print(f"{counts[0]:,} pictures, {counts[1]} of them without a label")
        # The nearest neighbors of 500 new pictures, by the built indexes.
        guessed = [row.digit for row in recognized(spark, server, all_pictures[-NEW:]).collect()]
    true = all_digits[-NEW:]
    print(f"recognized {np.mean(guessed == true):.1%} of {NEW} new pictures")
    plot_confusion(true, guessed, out / "digits-recognized.svg")

    # Near duplicates, deleted by a frame of keys.
    twice = near_duplicates(spark, NAME, field="picture", radius=DIM * 2.0, **server)
    keys = twice.selectExpr("key as id").cache()
    keys.write.format("elanus").mode("append").options(**server, collection=NAME, operation="delete").save()
    print(f"deleted {keys.where(f'id >= {COPIES_FROM}').count()} copies, {keys.count()} pictures in all")

    # How many of the ten nearest searches find under several settings, compared with exact answers.
    settings = [{"nprobe": lists} for lists in (1, 2, 4, 8, 16, 32)]
    report = recall_report(spark, NAME, field="picture", settings=settings, k=10, queries=200, **server)
    enough = report.cheapest(0.95)
    print(report)
    print(f"enough for 95 % recall: {enough and dict(enough.params)}")
    report.plot(out / "digits-recall.svg")

    # DuckDB reads the same files, and leaves out what was deleted.
    with elanus.open(NAME, **server) as opened:
        rows = opened.to_duckdb().sql(f"select digit, count(*) from {NAME} group by digit order by digit")
        print("in DuckDB:", ", ".join(f"{digit}: {count:,}" for digit, count in rows.fetchall()))


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    uri, imports = given.get(0, "http://127.0.0.1:19530"), given.get(1, "elanus-data/import")
    main(uri, Path(imports), Path(given.get(2, "out")))
