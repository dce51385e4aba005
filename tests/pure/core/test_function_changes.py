"""Functions that a collection gets or loses after it was made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.function_changes import with_added_function, with_dropped_function, with_set_function
from elanus.core.functions import Function
from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema

OLD = CollectionSchema(
    "docs",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        FieldSchema(FieldID(101), "v", DataType.FLOAT_VECTOR, dim=2),
        FieldSchema(FieldID(102), "text", DataType.VARCHAR, max_length=9, params={"enable_analyzer": "true"}),
        FieldSchema(FieldID(103), "$meta", DataType.JSON, is_dynamic=True),
    ),
    enable_dynamic=True,
)
TERMS = FieldSchema(FieldID(0), "terms", DataType.SPARSE_FLOAT_VECTOR)
BM25 = Function("bm25", "BM25", ("text",), ("terms",))
NEAR = FieldSchema(FieldID(0), "near", DataType.BINARY_VECTOR, dim=64)
MINHASH = Function("minhash", "MinHash", ("text",), ("near",))
NEW = with_added_function(OLD, TERMS, BM25)
BOTH = with_added_function(NEW, NEAR, MINHASH)


def test_a_function_comes_with_its_field() -> None:
    field = NEW.field("terms")
    assert [f.name for f in NEW.fields] == ["id", "v", "text", "terms", "$meta"]
    assert (field.field_id, field.is_added, field.is_function_output) == (104, True, True)
    assert NEW.function_of(field) == BM25
    assert BOTH.function_of(BOTH.field("near")) == MINHASH


EMBED = Function("embed", "TextEmbedding", ("text",), ("v",), params={"provider": "tei"})


def test_a_stored_function_comes_to_a_field_that_is_there_and_leaves_it_there() -> None:
    more = with_set_function(NEW, EMBED)
    assert more.functions == (BM25, EMBED)
    assert more.field("v").is_function_output
    assert more.field("v").field_id == NEW.field("v").field_id
    changed = replace(EMBED, params={"provider": "TEI", "truncate": "True"})
    assert with_set_function(more, changed, "embed").functions == (BM25, changed)
    assert with_dropped_function(more, "embed", with_outputs=False) == NEW


@pytest.mark.parametrize(
    ("function", "replaced", "text"),
    [
        (EMBED, "", "duplicate function name: embed"),
        (replace(EMBED, name="other"), "", "duplicate function output field"),
        (replace(EMBED, name="other"), "nope", "function not found: nope"),
        (replace(EMBED, name="other"), "embed", "function embed keeps its name, its type and its fields"),
        (replace(EMBED, params={"provider": "x"}), "embed", "unsupported text embedding service provider"),
        (BM25, "bm25", "currently does not support alter BM25 function"),
        (BM25, "", "currently does not support adding BM25 function"),
    ],
)
def test_a_stored_function_that_cannot_be_set(function: Function, replaced: str, text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        with_set_function(with_set_function(NEW, EMBED), function, replaced)
    assert text in refusal.value.message


def test_a_stored_function_is_not_added_with_a_field() -> None:
    dense = FieldSchema(FieldID(0), "dense", DataType.FLOAT_VECTOR, dim=2)
    with pytest.raises(InvalidParameter, match="earlier rows would have no vectors"):
        with_added_function(OLD, dense, replace(EMBED, outputs=("dense",)))


@pytest.mark.parametrize("name", ["bm25", "minhash"])
def test_a_function_goes_with_its_field(name: str) -> None:
    less = with_dropped_function(BOTH, name, with_outputs=True)
    assert len(less.functions) == 1
    assert len(less.fields) == 5
    assert [d.name for d in less.dropped] == ["terms" if name == "bm25" else "near"]


@pytest.mark.parametrize(
    ("field", "function", "text"),
    [
        (replace(TERMS, name="text"), BM25, "duplicate field name: text"),
        (TERMS, replace(BM25, outputs=("v",)), "must compute the field that is added with it: terms, not v"),
        (replace(TERMS, nullable=True), BM25, "function output field cannot be nullable"),
        (NEAR, replace(BM25, outputs=("near",)), "BM25 function output field must be a"),
        (TERMS, replace(BM25, inputs=("nope",)), "function input field not found: nope"),
        (TERMS, replace(BM25, inputs=("id",)), "BM25 function input field must be a VARCHAR/TEXT field"),
    ],
)
def test_what_cannot_be_added(field: FieldSchema, function: Function, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        with_added_function(OLD, field, function)


def test_a_second_function_of_a_name_cannot_be_added() -> None:
    with pytest.raises(InvalidParameter, match="duplicate function name: bm25"):
        with_added_function(NEW, NEAR, replace(MINHASH, name="bm25"))


@pytest.mark.parametrize(
    ("name", "with_outputs", "text"),
    [
        ("", True, "function name is empty"),
        ("nope", True, "function not found: nope"),
        ("bm25", False, "BM25 function must be dropped with its output field in drop_function_field"),
        ("minhash", False, "MinHash function must be dropped with its output field"),
    ],
)
def test_what_cannot_be_dropped(name: str, with_outputs: bool, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        with_dropped_function(BOTH, name, with_outputs=with_outputs)


def test_the_last_vectors_stay() -> None:
    only = replace(NEW, fields=tuple(f for f in NEW.fields if f.name != "v"))
    with pytest.raises(InvalidParameter, match="cannot drop function bm25: it would leave no vector field"):
        with_dropped_function(only, "bm25", with_outputs=True)
