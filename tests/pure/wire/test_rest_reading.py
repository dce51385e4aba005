"""Bodies of rows: those that one parser reads alone, and those that are left to the other, mean the same.

Large bodies are read in pieces, with the same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elanus.proxy.rest import reading
from elanus.proxy.rest.entity_bodies import FlatRows, Rows, Search
from elanus.proxy.rest.errors import BadFormat, MissingField
from elanus.proxy.rest.reading import read

_NUMBERS = (
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(max_size=5) | st.lists(_NUMBERS, max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_ROWS = st.lists(st.dictionaries(st.text(max_size=4), _VALUES, max_size=4), max_size=4)


@pytest.fixture(params=["whole", "in pieces"], autouse=True, scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in pieces":
            patch.setattr(reading, "_LARGE_BYTES", 0)
            patch.setattr(reading, "_PIECE_BYTES", 40)
        yield


def body_of(data: str) -> bytes:
    return f'{{"collectionName": "c", "data": {data}}}'.encode()


@given(_ROWS)
def test_rows_are_those_of_the_general_parser(rows: list[dict[str, Any]]) -> None:
    body = body_of(json.dumps(rows))
    found = read(body, Rows)
    assert repr(found.data) == repr(orjson.loads(body)["data"])  # repr: 1 and 1.0 differ, as 0.0 and -0.0


def test_rows_of_numbers_texts_and_vectors_are_read_by_one_parser() -> None:
    found = read(body_of('[{"id": 1, "vector": [0.5, 1, -2.25], "name": null}]'), Rows)
    assert isinstance(found, FlatRows)
    assert found.data == [{"id": 1, "vector": [0.5, 1, -2.25], "name": None}]


@pytest.mark.parametrize(
    "value",
    ['{"a": 1}', '["a"]', "[[1.5]]", "[true]", "9223372036854775808", "[1e30, 123456789012345678901]"],
)
def test_rows_of_other_values_are_left_to_the_general_parser(value: str) -> None:
    found = read(body_of(f'[{{"id": {value}}}]'), Rows)
    assert type(found) is Rows
    assert repr(found.data) == repr([{"id": orjson.loads(value)}])


@pytest.mark.parametrize(
    "data",
    [
        "[{]",
        "[1e400]",
        '[{"id": 1e400}]',
        '[{"id": NaN}]',
        '[{"id": "\\ud800"}]',
        '[{"id": ' + "9" * 5000 + "}]",
        "[" * 100_000 + "]" * 100_000,
        '[{"id": ' + "[" * 1000 + "]" * 1000 + "}",
        '[{"id": 1}], "other": 1',
        '[{"id": 1}], "partialUpdate": "perhaps"',
        "7",
    ],
)
def test_a_body_that_is_not_valid_is_refused(data: str) -> None:
    with pytest.raises(BadFormat):
        read(body_of(data), Rows)


@pytest.mark.parametrize("text", [b'{"collectionName": "\xff", "data": []}', b"[]", b"\xef\xbb\xbf{}"])
def test_a_body_that_is_no_json_object_in_utf_8_is_refused(text: bytes) -> None:
    with pytest.raises(BadFormat):
        read(text, Rows)


def test_nulls_and_quoted_values_of_the_body_itself_are_read_as_before() -> None:
    body = b'{"collectionName": "c", "dbName": null, "partialUpdate": "true", "data": {"id": 1}}'
    assert msgspec.structs.asdict(read(body, Rows)) == {
        "db_name": "",
        "collection_name": "c",
        "data": {"id": 1},
        "partition_name": "",
        "partial_update": True,
        "field_ops": [],
    }


@pytest.mark.parametrize("text", [b"", b'{"data": []}', b'{"collectionName": "", "data": []}'])
def test_a_body_without_its_collection_is_refused(text: bytes) -> None:
    with pytest.raises(MissingField):
        read(text, Rows)


def test_members_that_are_null_may_be_unknown() -> None:
    body = b'{"collectionName": "c", "data": [{"id": 1}], "x": null, "y":null}'
    assert read(body, Rows).data == [{"id": 1}]
    with pytest.raises(BadFormat, match="unknown field `x`"):
        read(b'{"collectionName": "c", "data": [{"id": 1}], "x": 1, "y": null}', Rows)


@pytest.mark.parametrize(
    "value", ["[]", "[ ]", "[1]", "[1, 2.5,-3e2]", "[" + "1,22," * 100 + "3]", "[null, true, 1]"]
)
def test_lists_of_numbers_are_those_of_the_general_parser(value: str) -> None:
    body = f'{{"collectionName": "c", "ids": {value}}}'.encode()
    assert repr(reading.parsed(body, Search)["ids"]) == repr(orjson.loads(value))


LARGE = 2 << 20


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param('[{"v": [' + "0," * (LARGE // 2) + "0]}]", "a row or vector", id="a long vector"),
        pytest.param(
            "[{" + ",".join(f'"{n}":1' for n in range(LARGE // 8)) + "}]", "100000 members", id="a wide row"
        ),
        pytest.param("[" + "{}," * 260_000 + "{}]", "values", id="empty rows"),
    ],
)
def test_what_no_endpoint_accepts_is_not_parsed(
    data: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_LARGE_BYTES", 1000)
    monkeypatch.setattr(reading, "_ITEM_NUMBERS_MAX", 1_000_000)
    monkeypatch.setattr(reading, "_BRACKETS_MAX", 200_000)
    with pytest.raises(BadFormat, match=text):
        read(body_of(data), Rows)


def test_large_rows_among_small_ones_are_read_alone() -> None:
    rows: list[dict[str, Any]] = [{"id": n} for n in range(2000)]
    rows[7:7] = [{"id": -n, "text": "x" * 700_000} for n in range(3)]
    assert read(body_of(json.dumps(rows)), Rows).data == rows
