"""The columns that functions compute: empty in the log, filled in the files that jobs write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elanus.core.catalog import Checkpoint
from elanus.core.errors import InvalidParameter
from elanus.core.functions import Function
from elanus.core.given_types import check_columns
from elanus.core.ids import CollectionID, FieldID, PartitionID, SegmentID
from elanus.core.messages import InsertMessage
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.sparse import SparseRows
from elanus.core.timestamps import Timestamp
from elanus.log.port import Position
from elanus.pipeline import range_files
from elanus.pipeline.import_columns import Place, convert
from elanus.pipeline.import_files import import_rows, survey
from elanus.pipeline.import_plan import ImportPlan
from elanus.pipeline.import_sources import tables
from elanus.pipeline.range_files import write_range
from elanus.pipeline.ranges import FlushPlan
from elanus.storage.binlog import read_columns
from elanus.storage.local import LocalStore
from elanus.text import analyzer_from, term_rows, with_computed_columns

VCHANNEL = "by-dev-rootcoord-dml_0_7v0"
SCHEMA = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(
            FieldID(101), "text", DataType.VARCHAR, max_length=64, params={"enable_analyzer": "true"}
        ),
        FieldSchema(FieldID(102), "terms", DataType.SPARSE_FLOAT_VECTOR, is_function_output=True),
    ),
    functions=(Function("bm25", "BM25", ("text",), ("terms",)),),
)
SIGNATURES = FieldSchema(FieldID(103), "near", DataType.BINARY_VECTOR, dim=64, is_function_output=True)
MINHASH = Function("minhash", "MinHash", ("text",), ("near",))
TEXTS = ["to be or not to be", "", "that is the question", "to sleep"]
ORIGIN = Checkpoint(Timestamp(0), position=0, tick=Timestamp(0), epoch=0)
PLACE = Place("file.parquet", 0, 0)


def terms_of(texts: list[str]) -> list[bytes]:
    found: list[bytes] = term_rows(analyzer_from("").tokens_of(texts), len(texts)).to_column().to_pylist()
    return found


@pytest.mark.parametrize("open_max", [16, 0])
def test_a_flush_computes_them(open_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_files, "OPEN_MAX", open_max)
    rows = pa.record_batch(
        [pa.array([4, 1, 3, 2]), pa.array(TEXTS), pa.array([b""] * 4, pa.binary())],
        schema=SCHEMA.arrow_schema,
    )
    message = InsertMessage(Timestamp(5), VCHANNEL, CollectionID(7), PartitionID(1), SegmentID(9), 0, rows)
    plan = FlushPlan(
        attempt="try-1",
        collection_id=CollectionID(7),
        schema=SCHEMA,
        vchannel=VCHANNEL,
        pchannel="by-dev-rootcoord-dml_0",
        start=ORIGIN,
        until=Timestamp(10),
        stop=Position(1000),
        log_url="file:///log",
        store_url="file:///files",
        scratch_dir="/scratch",
    )
    store = LocalStore(tmp_path / "files")
    (output,) = write_range(plan, [message], store, tmp_path, "one").segments
    found = read_columns(store, output.insert_logs, ["text", "terms"])
    assert sorted(found["text"].to_pylist()) == sorted(TEXTS)
    assert found["terms"].to_pylist() == terms_of(found["text"].to_pylist())
    values = SparseRows.from_column(found["terms"].combine_chunks()).values
    assert sorted(values.tolist()) == [1.0] * 8 + [2.0] * 2


def test_an_import_computes_them(tmp_path: Path) -> None:
    (tmp_path / "import").mkdir()
    source = LocalStore(tmp_path / "import")
    table = pa.table({"id": [1, 2, 3, 4], "text": TEXTS})
    pq.write_table(table, tmp_path / "import" / "a.parquet", row_group_size=3)
    plan = ImportPlan(
        attempt=5,
        collection_id=CollectionID(7),
        partition_id=PartitionID(8),
        schema=SCHEMA,
        vchannels=(VCHANNEL,),
        parts=tuple(survey(source, tables(["a.parquet"]), SCHEMA)),
        first_id=1000,
        rows_max=10_000,
        bytes_max=2**30,
        stamp=Timestamp(99),
        source_url=source.url,
        store_url="file:///files",
        scratch_dir="/scratch",
    )
    batches = list(import_rows(plan, source))
    assert [batch.num_rows for batch in batches] == [3, 1]
    assert [terms for batch in batches for terms in batch["terms"].to_pylist()] == terms_of(TEXTS)


def test_a_file_to_import_leaves_them_out() -> None:
    columns = pa.schema([("id", pa.int64()), ("text", pa.string())])
    check_columns(SCHEMA, columns, "file.parquet")
    batch = pa.record_batch([pa.array([1, 2, 3, 4]), pa.array(TEXTS)], schema=columns)
    assert convert(SCHEMA, batch, None, PLACE)["terms"].to_pylist() == [b""] * 4
    signed = replace(SCHEMA, fields=(*SCHEMA.fields[:2], SIGNATURES), functions=(MINHASH,))
    rows = convert(signed, batch, None, PLACE)
    assert rows["near"].to_pylist() == [bytes(8)] * 4
    assert len(set(with_computed_columns(signed, rows)["near"].to_pylist())) == 4
    with pytest.raises(InvalidParameter, match="field terms is the output of a function"):
        check_columns(SCHEMA, columns.append(pa.field("terms", pa.binary())), "file.parquet")
