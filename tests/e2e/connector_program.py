"""A user of the connector, on one release of Spark: prints a JSON object of outcomes.

Run by `connector_releases` with the Python of an environment that has PySpark and the connector's wheel, and
neither the sources nor the server. Arguments: the server's address, a collection with 1,000 rows, a directory
for files of its own, and, for Spark Connect, what to connect to.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

URI, COLLECTION, FILES = sys.argv[1:4]
REMOTE = sys.argv[4] if len(sys.argv) > 4 else ""
SERVER = {"uri": URI, "connect_s": "100"}
"""On a busy machine a server may take its time to answer."""
THERE = {**SERVER, "collection": COLLECTION}
OUTCOMES: dict[str, str] = {}


def start() -> SparkSession:
    if REMOTE:
        return SparkSession.builder.remote(REMOTE).getOrCreate()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def step(title: str) -> Callable[[Callable[[], Any]], None]:
    def run(check: Callable[[], Any]) -> None:
        try:
            check()
            OUTCOMES[title] = "yes"
        except Exception as error:  # noqa: BLE001 - any failure is an outcome
            text = str(error)
            said = (
                [line for line in text.splitlines() if "NotSupported:" in line] or text.splitlines() or [""]
            )
            OUTCOMES[title] = f"{type(error).__name__}: {said[0].strip()}"

    return run


def load(**options: str) -> Any:
    return spark.read.format("elanus").options(**THERE, **options).load()


spark = start()


@step("read")
def _read() -> None:
    docs = load()
    assert docs.count() == 1000
    row = docs.where("id = 3").collect()[0]
    assert (row["vector"], json.loads(row["$meta"])) == ([3.0, 1.0, 2.0, 3.0], {"color": "red"})


@step("filter, columns")
def _filter() -> None:
    assert load(columns="id", filter='color == "red" and id < 10').count() == 5


@step("write, exactly once")
def _write() -> None:
    more = spark.range(1000, 1100).selectExpr("id", "array(1f, 1f, 2f, 3f) AS vector", "'late' AS color")
    for _ in range(2):
        more.write.format("elanus").mode("append").options(**THERE, write_id=COLLECTION).save()
    assert load(columns="id").count() == 1100


@step("changes")
def _changes() -> None:
    assert load(changes_from="0", columns="id").where("_change_type = 'insert'").count() == 1100


@step("register again")
def _register() -> None:
    from elanus.spark import register

    register(spark)
    assert load(columns="id").count() == 1100


@step("SQL view")
def _view() -> None:
    spark.sql(
        f"create temporary view of_elanus using elanus options (uri '{URI}', connect_s '100', "
        f"collection '{COLLECTION}')"
    )
    assert spark.sql("select count(id) from of_elanus").collect()[0][0] == 1100


@step("table")
def _table() -> None:
    from elanus.spark import table

    assert table(spark, COLLECTION, **SERVER).where("id >= 1000").count() == 100


@step("write a stream")
def _stream() -> None:
    spark.range(2000, 2010).selectExpr("id", "array(1f, 1f, 2f, 3f) AS vector").write.parquet(f"{FILES}/in")
    frame = spark.readStream.schema("id long, vector array<float>").parquet(f"{FILES}/in")
    query = frame.writeStream.format("elanus").trigger(availableNow=True)
    query.options(**THERE, checkpointLocation=f"{FILES}/out").start().awaitTermination()
    assert load(columns="id", filter="id >= 2000").count() == 10


@step("stream of changes")
def _change_stream() -> None:
    frame = spark.readStream.format("elanus").options(**THERE, changes_from="0", columns="id").load()
    query = frame.writeStream.format("parquet").option("checkpointLocation", f"{FILES}/seen")
    query.trigger(once=True).start(f"{FILES}/changes").awaitTermination()
    assert spark.read.parquet(f"{FILES}/changes").where("id < 1100").count() == 1100


@step("knn_join")
def _search() -> None:
    from elanus.spark import knn_join

    queries = spark.range(3).selectExpr("id", "array(float(id * 100) + 0.2f, 1f, 2f, 3f) AS vector")
    for exact in (False, True):
        hits = knn_join(
            spark, COLLECTION, queries, field="vector", k=1, filter="id < 1000", exact=exact, **SERVER
        )
        assert [row.key for row in hits.orderBy("query_id").collect()] == [0, 100, 200]


@step("near_duplicates")
def _duplicates() -> None:
    from elanus.spark import near_duplicates

    late = "id >= 1000 and id < 1100"  # all of them have the same vector
    found = near_duplicates(spark, COLLECTION, field="vector", radius=0.5, k=128, filter=late, **SERVER)
    assert sorted((row.key, row.keep) for row in found.collect()) == [(n, 1000) for n in range(1001, 1100)]


@step("recall_report")
def _recall() -> None:
    from elanus.spark import recall_report

    # two hits: a third one would be one of two rows at the same distance, chosen otherwise by an index, which
    # is or is not built by now
    report = recall_report(
        spark, COLLECTION, field="vector", settings=[{}], k=2, queries=20, filter="id < 1000", **SERVER
    )
    assert report.queries == 20
    assert report.points[0].recall > 0.9


@step("table functions")
def _functions() -> None:
    from elanus.spark import attach

    with attach(spark, COLLECTION, **SERVER):
        nearest = f"elanus_search('{COLLECTION}', q.v, 1, filter => 'id < 1000')"
        queries = "(SELECT array(float(id * 100) + 0.2f, 1f, 2f, 3f) AS v FROM range(3)) q"
        rows = spark.sql(f"SELECT h.key FROM {queries}, LATERAL {nearest} h").collect()
        assert sorted(row.key for row in rows) == [0, 100, 200]
        stored = spark.sql(f"SELECT sum(rows) FROM elanus_segments('{COLLECTION}')").collect()[0][0]
        assert stored >= 1100


@step("SQL tables: INSERT INTO one, from another")
def _insert() -> None:
    there = f"uri '{URI}', connect_s '100', collection '{COLLECTION}'"
    spark.sql(f"create table appended using elanus options ({there})")
    spark.sql(f"create table upserted using elanus options ({there}, operation 'upsert')")
    spark.sql("insert into upserted select * from appended where id < 5")
    spark.sql("insert into appended values (3000, array(1f, 1f, 2f, 3f), '{}')")
    spark.sql("insert into appended select id + 3001, vector, `$meta` from upserted where id < 5")
    assert sorted(row.id for row in load(columns="id", filter="id < 5 or id >= 3000").collect()) == [
        *range(5),
        *range(3000, 3006),
    ]


@step("nothing of the server")
def _no_server() -> None:
    assert not (Path(sys.modules["elanus"].__path__[0]) / "server").exists()


spark.stop()
sys.stdout.write(f"{json.dumps(OUTCOMES)}\n")
