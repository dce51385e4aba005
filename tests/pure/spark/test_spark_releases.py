"""Releases of Spark that lack something: the connector says so, and does the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import datasource
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from elanus.api.connector import WriteTarget
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.ids import CollectionID, FieldID, PartitionID
from elanus.core.imports import WritePlace
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.types import DataType
from elanus.spark.change_source import RefusedStream
from elanus.spark.knn import joined
from elanus.spark.releases import arrow_schema
from elanus.spark.sink import ElanusWriter, Sink
from elanus.spark.source import ElanusSource, register

COLUMNS = StructType([StructField("id", LongType(), False), StructField("at", TimestampType())])


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with a collection of these columns."""
    id_field = FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True)
    at = FieldSchema(FieldID(101), "at", DataType.TIMESTAMPTZ)
    place = WritePlace(CollectionID(7), PartitionID(8))
    found = WriteTarget(place, CollectionSchema("docs", (id_field, at))), "file:///nothing"
    monkeypatch.setattr(Sink, "_ask", lambda self, call: found)


def test_times_are_in_utc() -> None:
    assert arrow_schema(COLUMNS).field("at").type == pa.timestamp("us", tz="UTC")


def test_overwriting_with_no_rows_writes_a_file_of_the_frames_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"collection": "docs", "partition": "p", "import_directory": tmp_path.as_uri()}
    source = ElanusSource(options)
    writer = source.writer(COLUMNS, overwrite=True)
    assert isinstance(writer, ElanusWriter)
    committed: list[Any] = []
    monkeypatch.setattr(writer._sink, "commit", lambda messages, write_id: committed.extend(messages))
    writer.commit([None])
    assert pq.read_schema(tmp_path / committed[-1].file).names == ["id", "at"]


def test_streams_need_newer_releases_than_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"collection": "docs", "stream_id": "s", "import_directory": tmp_path.as_uri()}
    source = ElanusSource(given)
    source.streamWriter(COLUMNS, overwrite=False)
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    with pytest.raises(NotSupported, match=r"writing a stream needs Spark 4\.1.*foreachBatch"):
        source.streamWriter(COLUMNS, overwrite=False)
    changes = ElanusSource({"collection": "docs", "changes_from": "0"})
    assert changes.streamReader(COLUMNS).initialOffset() == {"ts": 0}
    monkeypatch.setattr(datasource.DataSourceStreamReader, "latestOffset", lambda self: {})
    with pytest.raises(NotSupported, match=r"a stream of changes needs Spark 4\.2.*changes_from"):
        changes.streamReader(COLUMNS).initialOffset()


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"collection": "docs"}, "a stream reads changes"), ({"colour": "red"}, "unknown option colour")],
)
def test_the_reader_of_a_stream_says_why_it_refuses(options: dict[str, str], reason: str) -> None:
    """Spark's runner hides what `streamReader` itself raises. It asks a new stream for its first offset, and
    one with a checkpoint for its latest, or for the partitions of a batch that was not committed."""
    refused = ElanusSource(options).streamReader(COLUMNS)
    assert isinstance(refused, RefusedStream)
    asked: list[Callable[[], object]] = [
        refused.initialOffset,
        lambda: refused.latestOffset({}, None),
        lambda: refused.latestOffset(),  # Spark 4.0 and 4.1
        lambda: refused.partitions({}, {}),
        lambda: refused.read(InputPartition(None)),
    ]
    for ask in asked:
        with pytest.raises(InvalidParameter, match=reason):
            ask()


def test_searches_need_a_release_that_places_rows() -> None:
    nothing: Any = SimpleNamespace()
    with pytest.raises(NotSupported, match=r"a search needs Spark 4\.1"):
        joined(nothing, nothing, nothing, 2)


class Refused(AnalysisException):
    """As Spark raises it: its conditions are known to the JVM only."""

    def __init__(self, condition: str) -> None:
        super().__init__(f"[{condition}]")
        self._raised = condition

    def getCondition(self) -> str:
        return self._raised


def session_that_refuses(condition: str) -> Any:
    def refuse(source: type) -> None:
        raise Refused(condition)

    return SimpleNamespace(dataSource=SimpleNamespace(register=refuse))


def test_a_format_that_spark_found_by_itself_may_be_registered_again() -> None:
    spark = session_that_refuses("DATA_SOURCE_ALREADY_EXISTS")
    register(spark)
    with pytest.raises(NotSupported, match="without token, uri: give the options to each read"):
        register(spark, uri="http://db:19530", token="user:password")


def test_what_else_a_registration_raises_is_passed_on() -> None:
    with pytest.raises(Refused):
        register(session_that_refuses("SESSION_CLOSED"))
