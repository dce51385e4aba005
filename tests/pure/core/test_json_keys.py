"""Values inside JSON documents as keys: where they are, and what becomes of those of another type."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.json_keys import (
    JsonKey,
    JsonPath,
    json_values,
    ordered_values,
    parse_json_path,
    parse_json_pointer,
)
from elanus.core.types import DataType

VALUES = ["1", '"1"', "true", "2.0", "200", "null", "[1,2]", '{"b":1,"a":2}', "1e999"]
ROWS = pa.array([*(f'{{"k":{{"x":[0,{value}]}}}}' for value in VALUES), "{}", None, "7"])


def read(data_type: DataType | None = None, path: JsonPath = ("k", "x", 1), **more: bool) -> list[Any]:
    found: list[Any] = json_values(ROWS, JsonKey("k", "doc", path, data_type, **more)).to_pylist()
    return found


def nulls_but(**places: Any) -> list[Any]:
    return [places.get(f"at_{place}") for place in range(len(ROWS))]


def test_values_of_another_type_are_null() -> None:
    assert read(DataType.INT64) == nulls_but(at_0=1, at_4=200)
    assert read(DataType.INT8) == nulls_but(at_0=1)
    assert read(DataType.BOOL) == nulls_but(at_2=True)
    assert read(DataType.VARCHAR) == nulls_but(at_1="1")


def test_without_a_type_the_text_of_any_value_counts() -> None:
    texts = read()
    assert texts[:8] == ["1", '"1"', "true", "2.0", "200", None, "[1,2]", '{"a":2,"b":1}']
    assert texts[9:] == [None, None, None]


def test_a_strict_key_refuses_values_of_another_type() -> None:
    with pytest.raises(InvalidParameter, match="failed to cast json value to INT64, wrong json"):
        read(DataType.INT64, strict=True)


def test_a_place_beyond_an_array_and_a_key_of_no_object_have_no_value() -> None:
    assert read(path=("k", "x", 2)) == read(path=("k", 0)) == nulls_but()
    assert read(path=("k", "x", "0"))[0] == "0"
    assert read(path=("k", "x", "9" * 5000)) == nulls_but()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("color", ("color", ())),
        ("doc['a'][\"b\"][0]", ("doc", ("a", "b", 0))),
        (r"$meta['it\'s']", ("$meta", ("it's",))),
        (r'doc["\u00e9\ud83d\ude00"]["tab\t"]["a\\b"]', ("doc", ("é😀", "tab\t", "a\\b"))),
        (r'doc["\ud83d"]', None),
        ("doc[a]", None),
        ("[0]", None),
        ("doc['a'].b", None),
        ("doc[" + "9" * 18 + "]", ("doc", (10**18 - 1,))),
        ("doc[" + "9" * 5000 + "]", None),
    ],
)
def test_paths_are_keys_in_brackets(text: str, parsed: tuple[str, JsonPath] | None) -> None:
    assert parse_json_path(text) == parsed


def test_pointers_are_keys_between_slashes() -> None:
    assert parse_json_pointer("/a/0/x~1y~0z") == ("a", "0", "x/y~z")
    with pytest.raises(InvalidParameter, match=r"json_path \[a\] is invalid"):
        parse_json_pointer("a")


def test_an_integer_beyond_all_doubles_has_a_place_in_the_order() -> None:
    rows = pa.array(['{"a":1}', '{"a":%s}' % ("7" * 400), '{"a":-%s}' % ("7" * 400)])
    assert ordered_values(rows, ("a",)).to_pylist() == [1.0, math.inf, -math.inf]


def test_a_document_that_is_nested_too_deeply_for_its_reader_has_no_value() -> None:
    """The writer's stack was lower, so the document was accepted."""
    deep = '{"a":' + "[" * 100_000 + "]" * 100_000 + ',"b":2}'
    rows = pa.array([deep, '{"a":[1],"b":2}'])
    assert ordered_values(rows, ("b",)).to_pylist() == [None, 2]
    assert json_values(rows, JsonKey("b", "doc", ("b",), DataType.INT64)).to_pylist() == [None, 2]
    assert json_values(rows, JsonKey("a", "doc", ("a",))).to_pylist() == [None, "[1]"]
