"""Texts that clients send are read in time that grows with their length, whatever is in them.

Each of these took time that grew with the square of the length: a minute for a hundred thousand characters,
in which nothing else ran in the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from elanus.core.aggregation import parse_aggregate
from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.json_keys import split_names
from elanus.core.moments import with_offsets
from elanus.core.ordering import parse_order
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import struct_and_name

LENGTH = 100_000
SCHEMA = CollectionSchema("docs", (FieldSchema(FieldID(100), "id", DataType.INT64, is_primary=True),))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda text: parse_order(text, SCHEMA), "[" * LENGTH),
        (lambda text: parse_order(text, SCHEMA, dynamic=True), "x[" * (LENGTH // 2)),
        (lambda text: parse_order(text, SCHEMA), f"sum({' ' * LENGTH}!"),
        (lambda text: parse_aggregate(text, SCHEMA), f"sum({' ' * LENGTH}!"),
        (split_names, r'["\"' * (LENGTH // 4)),
        (struct_and_name, "[" * LENGTH),
        (lambda text: with_offsets(text, "Asia/Shanghai"), "ISO " + "\\'" * (LENGTH // 2)),
        (lambda text: with_offsets(text, "Asia/Shanghai"), "ISO " + '"\\' * (LENGTH // 2)),
    ],
    ids=["order", "paths", "aggregate in an order", "aggregate", "names", "struct", "quotes", "backslash"],
)
def test_no_character_is_looked_at_again_for_each_other(read: Callable[[str], object], text: str) -> None:
    began = time.process_time()
    with suppress(InvalidParameter):
        read(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        (" , ,", []),
        ("tag, x,tag", ["tag", "x", "tag"]),
        ('doc["a,b"][0],x', ['doc["a,b"][0]', "x"]),
        ("doc['a[b'], x", ["doc['a[b']", "x"]),
        ("x[,y", ["x[,y"]),
        ('doc["a],b"], x', ['doc["a],b"]', "x"]),
        (r"doc['it\'s],']:desc, x", [r"doc['it\'s],']:desc", "x"]),
        ("it's, x", ["it's", "x"]),
    ],
)
def test_names_are_separated_by_the_commas_outside_of_brackets(text: str, names: list[str]) -> None:
    assert split_names(text) == names


@pytest.mark.parametrize(
    ("member", "parts"),
    [
        ("clips[title]", ("clips", "title")),
        ("a[b[c]", ("a[b", "c")),
        ("a[b[]", ("a", "b[")),
        ("a[b]c]", ("a", "b]c")),
        ("a[]", None),
        ("[a]", None),
        ("a[b", None),
        ("", None),
        ("]", None),
    ],
)
def test_a_member_has_a_struct_array_and_a_field(member: str, parts: tuple[str, str] | None) -> None:
    assert struct_and_name(member) == parts


def test_local_times_behind_other_texts_are_written_as_moments() -> None:
    filter_ = "a == 'ISO \\' ' and t > ISO '2025-01-01T08:00:00' and b == \"\\\n'\" and c == 'ISO"
    written = with_offsets(filter_, "Asia/Shanghai")
    assert written == filter_.replace("2025-01-01T08:00:00", "2025-01-01T00:00:00Z")
