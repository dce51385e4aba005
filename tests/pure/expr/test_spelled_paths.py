"""A key inside JSON may be spelled in several ways, and every part of a request reads each of them alike."""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa
import pytest
from filter_schemas import DYNAMIC

from elanus.core.json_keys import JsonPath, ordered_values, parse_json_path
from elanus.core.ordering import parse_order
from elanus.expr import compile_filter, typed_column
from elanus.index import json_path_of, resolve_index
from elanus.index.resolve import located

_LETTERS = "ab0 .,:/~%$_\\\"'é漢😀\n\t\x00"
_FIELD = DYNAMIC.field("meta")


def spelled(random: Random, key: str) -> str:
    match random.randrange(3 if "\n" in key else 4):  # a line break in quotes has to be escaped
        case 0:
            return json.dumps(key)
        case 1:
            return json.dumps(key, ensure_ascii=False)
        case 2:
            return '"' + "".join(f"\\U{ord(letter):08x}" for letter in key) + '"'
    return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"


def indexed_path(text: str) -> JsonPath | None:
    """The path that a new index reads from this text."""
    sent = {"params": json.dumps({"json_path": text, "json_cast_type": "DOUBLE"}), "index_type": "INVERTED"}
    return json_path_of(resolve_index(located(sent, _FIELD, "meta"), _FIELD.data_type, 0), _FIELD)


def test_filters_orders_groups_and_indexes_find_the_same_key() -> None:
    random = Random(1)
    for _ in range(200):
        keys = ["".join(random.choices(_LETTERS, k=random.randrange(1, 5))) for _ in range(2)]
        path = "meta" + "".join(f"[{spelled(random, key)}]" for key in keys)
        rows = pa.array([json.dumps({keys[0]: {keys[1]: 7}})], _FIELD.arrow_type)
        assert parse_json_path(path) == ("meta", tuple(keys)), path
        assert parse_order(f"{path}:desc", DYNAMIC, dynamic=True)[0].path == tuple(keys), path
        assert ordered_values(rows, tuple(keys)).to_pylist() == [7]
        assert indexed_path(path) == tuple(keys), path
        assert typed_column(rows, indexed_path(path) or (), "DOUBLE").to_pylist() == [7.0]
        assert compile_filter(f"{path} == 7", DYNAMIC).evaluate({"meta": rows}, 1).all(), path


@pytest.mark.parametrize(
    ("text", "path"), [(r'meta["u00e9"]', ("u00e9",)), (r'meta["\u00e9"]', ("u00e9",)), ("meta[0]", (0,))]
)
def test_an_index_of_an_earlier_release_stays_one_of_the_key_that_it_was_built_over(
    text: str, path: JsonPath
) -> None:
    stored = {"index_type": "INVERTED", "json_path": text, "json_cast_type": "DOUBLE"}
    assert json_path_of(resolve_index(stored, _FIELD.data_type, 0), _FIELD) == path
