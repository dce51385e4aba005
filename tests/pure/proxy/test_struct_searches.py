"""Searches of single elements in the proxy: merged, fused, grouped; queries that choose elements."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from elanus.api.querynode import NodeHits
from elanus.channels.read_codec import decode_answer, encode_answer
from elanus.core.errors import InvalidParameter
from elanus.core.grouping import Grouping
from elanus.core.ids import FieldID
from elanus.core.rankers import Rrf
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import ELEMENT, StructSchema
from elanus.expr import compile_filter
from elanus.proxy.api.query import ElementCursor
from elanus.proxy.fanout.reduce import merge_groups, merge_hits
from elanus.proxy.verbs.elements import chosen_elements, columns_read, elements_before
from elanus.proxy.verbs.hits import found_elements, fused, of_one_kind, window

CLIPS = "clips[v]"


def hits(*queries: list[tuple[int, int | None, float]], metric: str = "L2") -> NodeHits:
    """(key, element, score) of each hit; elements None for a search of rows."""
    flat = [hit for query in queries for hit in query]
    ids = np.array([key for key, _, _ in flat], dtype=np.int64)
    fields = {"id": pa.array(ids)}
    if not flat or flat[0][1] is not None:
        fields[ELEMENT] = pa.array([element for _, element, _ in flat], pa.int64())
    return NodeHits(
        metric,
        np.cumsum([0, *map(len, queries)]),
        ids,
        np.array([score for _, _, score in flat], dtype=np.float32),
        fields,
    )


def shown(found: NodeHits) -> list[tuple[int, int | None]]:
    elements = found_elements(found)
    places = [None] * len(found.scores) if elements is None else elements.tolist()
    return list(zip(found.ids.tolist(), places, strict=True))


def test_nodes_answers_keep_every_element() -> None:
    one = hits([(1, 0, 0.1), (1, 2, 0.4), (5, 0, 0.9)], [(1, 1, 0.0)])
    other = hits([(2, 0, 0.2), (1, 2, 0.3)], [])
    merged = merge_hits([one, decode_answer(encode_answer(other))], 4)
    assert shown(merged) == [(1, 0), (2, 0), (1, 2), (5, 0), (1, 1)]
    assert merged.scores.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.9, 0.0])
    assert shown(window(merged, 2, 1)) == [(2, 0), (1, 2)]


def test_groups_of_rows_have_their_best_element() -> None:
    one, other = hits([(1, 0, 0.1), (3, 2, 0.5)]), hits([(2, 1, 0.2), (4, 0, 0.3)])
    assert shown(merge_groups([one, other], Grouping(("id",), 1, False), 3)) == [(1, 0), (2, 1), (4, 0)]


def test_searches_of_one_struct_array_are_fused_by_element() -> None:
    parts = of_one_kind(
        [hits([(1, 0, 0.1), (1, 1, 0.2)]), hits([(1, 1, 0.1), (2, 0, 0.2)])], [CLIPS, "clips[w]"]
    )
    found, _ = fused(parts, Rrf(60))
    assert shown(found) == [(1, 1), (1, 0), (2, 0)]


@pytest.mark.parametrize("other", ["vector", "scenes[v]"])
def test_other_searches_are_fused_by_row(other: str) -> None:
    by_row = hits([(2, None, 0.1), (1, None, 0.2)]) if other == "vector" else hits([(2, 5, 0.1), (1, 0, 0.2)])
    parts = of_one_kind([hits([(1, 0, 0.1), (1, 1, 0.2), (3, 0, 0.3)]), by_row], [CLIPS, other])
    assert [part.ids.tolist() for part in parts] == [[1, 3], [2, 1]]
    assert shown(fused(parts, Rrf(60))[0]) == [(1, None), (2, None), (3, None)]


def test_no_hits_at_all() -> None:
    empty = hits([], [])
    assert shown(fused(of_one_kind([empty, empty], [CLIPS, CLIPS]), Rrf(60))[0]) == []
    assert of_one_kind([empty, hits([(1, None, 0.1)], [])], [CLIPS, "vector"])[0].fields.keys() == {"id"}


# ---- queries


def _array(number: int, name: str) -> FieldSchema:
    return FieldSchema(
        FieldID(number), name, DataType.ARRAY, element_type=DataType.INT64, max_capacity=9, nullable=True
    )


SCHEMA = CollectionSchema(
    "films",
    (
        FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),
        _array(102, "clips[a]"),
        _array(103, "clips[b]"),
    ),
    structs=(StructSchema(FieldID(101), "clips", nullable=True),),
)
ROWS = {
    "clips[a]": pa.array([[1, 5, 6], [7], [0, 9, 2, 8]], SCHEMA.field("clips[a]").arrow_type),
    "clips[b]": pa.array([[1, 1, 1], [1], [1, 1, 1, 0]], SCHEMA.field("clips[b]").arrow_type),
}


@pytest.mark.parametrize(
    ("limit", "offset", "rows", "elements"),
    [
        (None, 0, [0, 1, 2], [[1, 2], [0], [1]]),
        (2, 0, [0], [[1, 2]]),
        (2, 1, [0, 1], [[2], [0]]),
        (9, 3, [2], [[1]]),
        (9, 4, [], []),
    ],
)
def test_windows_count_elements(
    limit: int | None, offset: int, rows: list[int], elements: list[list[int]]
) -> None:
    bound = compile_filter("id > 0 and element_filter(clips, $[a] > 4 and $[b] == 1)", SCHEMA)
    assert columns_read(bound) == ("clips[a]", "clips[b]")
    found = chosen_elements(bound, ROWS, limit, offset)
    assert found.rows.tolist() == rows
    assert found.elements.to_pylist() == elements


@pytest.mark.parametrize(
    ("key", "element", "rows", "elements"),
    [
        ("11", 1, [0, 1, 2], [[2], [0], [1]]),
        ("11", 2, [1, 2], [[0], [1]]),
        ("11", 9, [1, 2], [[0], [1]]),
        ("12", 0, [0, 2], [[1, 2], [1]]),
        ("99", 0, [0, 1, 2], [[1, 2], [0], [1]]),  # the row has been deleted
    ],
)
def test_a_page_begins_after_an_element(
    key: str, element: int, rows: list[int], elements: list[list[int]]
) -> None:
    bound = compile_filter("element_filter(clips, $[a] > 4 and $[b] == 1)", SCHEMA)
    for keys, last in ((pa.array([11, 12, 13]), key), (pa.array(["k11", "k12", "k13"]), f"k{key}")):
        skipped = elements_before(ElementCursor(last, element), keys)
        found = chosen_elements(bound, ROWS, None, 0, skipped)
        assert found.rows.tolist() == rows
        assert found.elements.to_pylist() == elements
    with pytest.raises(InvalidParameter, match=r"query_iter_last_pk \[k1\] is no key"):
        elements_before(ElementCursor("k1", 0), pa.array([11]))


def test_other_filters_choose_no_elements() -> None:
    assert columns_read(compile_filter("match_any(clips, $[a] > 4)", SCHEMA)) == ()
