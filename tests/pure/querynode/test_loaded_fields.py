"""Loads of some fields: what is held of the rows, and which reads are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from node_rows import VECTOR, schema_of

from elanus.api.boosts import Boost, Boosts
from elanus.api.querynode import NodeQuery, NodeSearch
from elanus.core.aggregation import Aggregate, Aggregation
from elanus.core.errors import FieldNotLoaded, InvalidFilter
from elanus.core.functions import Function
from elanus.core.ids import CollectionID, FieldID
from elanus.core.ordering import OrderBy
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import Timestamp
from elanus.expr import compile_filter
from elanus.querynode.loaded_fields import Unloaded, held_schema

SCHEMA = schema_of(DataType.INT64)
VALUE, TAG, META = FieldID(101), FieldID(102), FieldID(104)
UNLOADED = Unloaded.of(SCHEMA, {TAG, META})
QUERY = NodeQuery(
    CollectionID(7), (), compile_filter("value > 1", SCHEMA), None, ("value", "tag"), None, Timestamp(1)
)
SEARCH = NodeSearch(
    CollectionID(7),
    (),
    VECTOR,
    np.zeros((1, 2), dtype=np.float32),
    3,
    "",
    {},
    compile_filter("", SCHEMA),
    ("value", "$meta"),
    Timestamp(1),
)


def test_what_is_not_loaded_is_not_held() -> None:
    assert held_schema(SCHEMA, ()) is SCHEMA
    held = held_schema(SCHEMA, {TAG, META})
    assert list(held.by_name) == ["id", "value", "vector"]


def test_the_field_of_expiry_and_the_texts_of_a_loaded_field_are_held() -> None:
    text = FieldSchema(
        FieldID(105),
        "text",
        DataType.VARCHAR,
        max_length=64,
        params={
            "enable_analyzer": "true",
            "multi_analyzer_params": '{"analyzers": {"default": {}}, "by_field": "tag"}',
        },
    )
    terms = FieldSchema(FieldID(106), "terms", DataType.SPARSE_FLOAT_VECTOR, is_function_output=True)
    bm25 = Function("bm25", "BM25", ("text",), ("terms",))
    whole = CollectionSchema("c", (*SCHEMA.fields, text, terms), functions=(bm25,), ttl_field="value")
    held = held_schema(whole, {VALUE, TAG, META, text.field_id})
    assert list(held.by_name) == ["id", "value", "tag", "vector", "text", "terms"]
    without = held_schema(whole, {VALUE, TAG, META, text.field_id, terms.field_id})
    assert (list(without.by_name), without.functions) == (["id", "value", "vector"], ())


def test_reads_of_loaded_fields_are_as_they_were() -> None:
    assert Unloaded().query(QUERY) is QUERY
    assert Unloaded().search(SEARCH) is SEARCH
    assert UNLOADED.query(replace(QUERY, output_fields=("value",))).output_fields == ("value",)


def test_an_answer_lacks_the_fields_that_it_may_lack() -> None:
    spared = ("value", "tag", "$meta")
    assert UNLOADED.query(replace(QUERY, spared_fields=spared)).output_fields == ("value",)
    assert UNLOADED.search(replace(SEARCH, spared_fields=spared)).output_fields == ("value",)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (QUERY, "field tag is not loaded"),
        (replace(QUERY, spared_fields=("value",)), "field tag is not loaded"),
        (
            replace(QUERY, output_fields=("$meta",)),
            "field $meta cannot be returned since dynamic field not loaded",
        ),
        (replace(QUERY, output_fields=(), order=(OrderBy("tag"),)), "field tag is not loaded"),
        (
            replace(
                QUERY,
                output_fields=(),
                aggregation=Aggregation(("tag",), (Aggregate("count", "*", "count(*)"),)),
            ),
            "field tag is not loaded",
        ),
    ],
)
def test_queries_that_need_more_are_refused(query: NodeQuery, text: str) -> None:
    with pytest.raises(FieldNotLoaded) as refused:
        UNLOADED.query(query)
    assert refused.value.message == text


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ('tag == "a"', 'error: field fieldID:102 name:"tag" data_type:VarChar is not loaded'),
        ("value > 1 and color == 1", "error: field color is dynamic but dynamic field is not loaded"),
    ],
)
def test_filters_that_need_more_are_refused(condition: str, text: str) -> None:
    bound = compile_filter(condition, SCHEMA)
    for read in (
        lambda: UNLOADED.query(replace(QUERY, filter=bound, output_fields=())),
        lambda: UNLOADED.search(replace(SEARCH, filter=bound, output_fields=())),
    ):
        with pytest.raises(InvalidFilter, match="cannot parse expression") as refused:
            read()
        assert refused.value.message.endswith(text)


def test_searches_that_need_more_are_refused() -> None:
    with pytest.raises(FieldNotLoaded, match=r'^ann field "vector" not loaded$'):
        Unloaded.of(SCHEMA, {VECTOR}).search(SEARCH)
    everything = compile_filter("", SCHEMA)
    boosted = Boosts((Boost(everything, 2.0, True, 1, "value"),), "multiply", "sum")
    with pytest.raises(FieldNotLoaded, match="field value is not loaded"):
        Unloaded.of(SCHEMA, {VALUE}).search(replace(SEARCH, output_fields=(), boosts=boosted))
