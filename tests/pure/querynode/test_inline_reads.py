"""Which searches are answered on the event loop: those whose cost follows from the number of their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elanus.api.querynode import NodeSearch
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID
from elanus.core.metrics import TRUTH
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.querynode.inline_reads import is_small
from elanus.querynode.snapshot import Snapshot

SCHEMA = CollectionSchema(
    "things",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "text", DataType.VARCHAR, max_length=100),
        FieldSchema(FieldID(102), "vector", DataType.FLOAT_VECTOR, dim=4),
        FieldSchema(FieldID(103), "signature", DataType.BINARY_VECTOR, dim=4096, is_function_output=True),
        FieldSchema(FieldID(104), "words", DataType.SPARSE_FLOAT_VECTOR, is_function_output=True),
        FieldSchema(
            FieldID(106),
            "clips[frame]",
            DataType.ARRAY_OF_VECTOR,
            dim=4,
            element_type=DataType.FLOAT_VECTOR,
            max_capacity=100,
        ),
        FieldSchema(FieldID(107), "embedded", DataType.FLOAT_VECTOR, dim=4, is_function_output=True),
    ),
    functions=(
        Function("near", "MinHash", ("text",), ("signature",)),
        Function("bm25", "BM25", ("text",), ("words",)),
        Function("embed", "TextEmbedding", ("text",), ("embedded",)),
    ),
    structs=(StructSchema(FieldID(105), "clips"),),
)
SNAPSHOT = Snapshot(CollectionID(7), SCHEMA, {}, 1, Timestamp(9), None, ())


def search(field: str) -> NodeSearch:
    return NodeSearch(
        collection_id=CollectionID(7),
        partition_ids=(),
        field_id=SCHEMA.field(field).field_id,
        queries=np.zeros((1, 4), dtype=np.float32),
        k=3,
        metric_type="",
        params={},
        filter=compile_filter("", SCHEMA),
        output_fields=("id",),
        read_ts=Timestamp(5),
    )


@pytest.mark.parametrize("field", ["vector", "embedded"])
def test_a_comparison_of_one_stored_vector_a_row_is_small(field: str) -> None:
    assert is_small(SNAPSHOT, search(field))


@pytest.mark.parametrize("field", ["clips[frame]", "signature", "words"])
def test_any_number_of_vectors_a_row_and_vectors_of_texts_are_not(field: str) -> None:
    assert not is_small(SNAPSHOT, search(field))


def test_a_search_for_the_truth_may_fetch_vectors_from_files() -> None:
    assert not is_small(SNAPSHOT, replace(search("vector"), params={"radius": 1.0, TRUTH: True}))
