"""Highlighters on the wire: their parameters, the refusals, and the answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from wire_messages import field, pairs, placeholder_group, resolved, schema, search_request

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.functions import Function
from elanus.core.highlights import Highlighting
from elanus.core.schema import DataType
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.search import Search, SearchResult
from elanus.proxy.wire.results import encode_search
from elanus.proxy.wire.search_request import TemplateCache, decode_search
from elanus.proxy.wire.stubs import common_pb2
from elanus.text import Highlight

SCHEMA = replace(
    schema(
        field("id", DataType.INT64, 100, is_primary=True),
        field("text", DataType.VARCHAR, 101, max_length=99, params={"enable_analyzer": "true"}),
        field("words", DataType.SPARSE_FLOAT_VECTOR, 102, is_function_output=True),
        field("v", DataType.FLOAT_VECTOR, 103, dim=2),
    ),
    functions=(Function("bm25", "BM25", ("text",), ("words",)),),
)
CACHE = TemplateCache()


def decoded(kind: int = common_pb2.Lexical, anns_field: str = "words", **params: object) -> Search:
    texts = placeholder_group([b"red fox", b"sea"], common_pb2.VarChar)
    vectors = placeholder_group([np.zeros(2, np.float32).tobytes()] * 2)
    request: Any = search_request(
        placeholder_group=texts if anns_field == "words" else vectors,
        nq=2,
        params={"anns_field": anns_field, "metric_type": None},
        highlighter=common_pb2.Highlighter(type=kind, params=pairs(params)),
    )
    return decode_search(request, resolved(SCHEMA), CACHE)


def test_a_highlighter_gets_the_texts_of_its_search() -> None:
    for _ in range(2):  # the second is made from the cached template
        found = decoded(highlight_search_text="true").highlight
        assert found == Highlight(Highlighting(of_search=True), "text", ("red fox", "sea"))


def test_the_parameters() -> None:
    query = json.dumps([{"type": "TextMatch", "field": "text", "text": "blue"}])
    found = decoded(
        anns_field="v",
        highlight_query=query,
        pre_tags='["<b>", "<i>"]',
        post_tags='["</>"]',
        fragment_size=7,
        fragment_offset=2,
        num_of_fragments=1,
    ).highlight
    assert found == Highlight(Highlighting(False, (("text", "blue"),), ("<b>", "<i>"), ("</>",), 7, 2, 1))


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"pre_tags": "[]"}, "pre_tags cannot be empty list"),
        ({"post_tags": "x"}, "unmarshal post_tags as string list failed"),
        ({"pre_tags": "[1]"}, "unmarshal pre_tags as string list failed"),
        ({"pre_tags": r'["\ud800"]'}, "unmarshal pre_tags as string list failed"),
        ({"pre_tags": "[" * 100_000}, "unmarshal pre_tags as string list failed"),
        ({"fragment_size": 0}, "invalid fragment_size: 0"),
        ({"fragment_offset": -1}, "invalid fragment_offset: -1"),
        ({"num_of_fragments": "x"}, "invalid num_of_fragments: x"),
        ({"highlight_search_text": "maybe"}, "unmarshal highlight_search_text as bool failed"),
        ({"highlight_query": "{}"}, "unmarshal highlight queries as json array failed"),
        ({"highlight_query": "[1]"}, "item in array is not json object"),
        ({"highlight_query": '[{"type": "TextMatch", "field": "text"}]'}, "must set `text` in query"),
        ({"highlight_query": '[{"text": "a", "field": "text", "type": "x"}]'},
         "invalid highlight query type: x"),
        ({"highlight_query": '[{"text": 1, "field": "text", "type": "x"}]'}, "`text` must be string"),
        ({"highlight_query": '[{"text": "a", "field": "f", "type": "TextMatch"}]'},
         "highlight field not found in schema: f"),
        ({"color": "red"}, "unknown parameter color of a highlighter"),
        ({"anns_field": "v", "highlight_search_text": "true"},
         'Search highlight only support with metric type "BM25"'),
    ],
)  # fmt: skip
def test_bad_parameters(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        decoded(**params)
    assert text in refusal.value.message


def test_semantic_highlighters_are_refused() -> None:
    with pytest.raises(NotSupported, match="semantic highlighter"):
        decoded(common_pb2.Semantic)


def test_an_answer_has_the_fragments_of_each_hit() -> None:
    result = SearchResult(
        np.array([0, 2]),
        np.array([1, 2]),
        np.array([2.0, 1.0], np.float32),
        {"text": pa.array(["a", "b"])},
        ("text",),
        None,
        SCHEMA,
        Timestamp(5),
        highlights={"text": [["<em>a</em>", "x"], []]},
    )
    (found,) = encode_search(result, "docs").results.highlight_results
    assert found.field_name == "text"
    assert [list(hit.fragments) for hit in found.datas] == [["<em>a</em>", "x"], []]
