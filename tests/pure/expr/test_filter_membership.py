"""``membership_match``: sets that clients build in bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from filter_schemas import DYNAMIC, PLAIN
from pymilvus import BloomFilterBuilder, build_bloom_filter, build_roaring_bitmap

from elanus.core import limits
from elanus.core.errors import InvalidFilter
from elanus.expr import JsonColumn, compile_filter
from elanus.expr.key_range import shape

COLUMNS = {
    "id": pa.array([1, 2, 3, -4, 5], pa.int64()),
    "tiny": pa.array([1, -1, None, 100, 7], pa.int8()),
    "color": pa.array(["red", "green", None, "", "ü"]).dictionary_encode(),
    "meta": pa.array(['{"a": 1}', '{"a": "red"}', '{"a": 1.0}', '{"a": null}', None]),
}
ROWS = 5
Members = Sequence[int | str]


def matching(text: str, blob: bytes) -> list[int]:
    bound = compile_filter(text, PLAIN, {"set": blob})
    columns = {**COLUMNS, "meta": JsonColumn(COLUMNS["meta"])}
    return bound.evaluate({name: columns[name] for name in bound.field_names}, ROWS).nonzero()[0].tolist()


def mixed() -> bytes:
    return BloomFilterBuilder(10).add_int64_batch([1]).add_string_batch(["red"]).build()


@pytest.mark.parametrize(
    ("text", "blob", "rows"),
    [
        ("membership_match(id, {set})", build_roaring_bitmap([1, 3, -4, 9]), [0, 2, 3]),
        ("membership_match(id, {set}, type=roaring)", build_roaring_bitmap([]), []),
        ("Membership_Match(id, {set}, TYPE = ROARING) and id > 1", build_roaring_bitmap([1, 3]), [2]),
        ("membership_match(tiny, {set})", build_roaring_bitmap([1, -1, 300]), [0, 1]),
        ("not membership_match(tiny, {set})", build_roaring_bitmap([1, -1]), [3, 4]),
        ("membership_match(id, {set}, type=bloom)", build_bloom_filter([1, 3, -4, 9]), [0, 2, 3]),
        ("membership_match(tiny, {set})", build_bloom_filter([-1, 100]), [1, 3]),
        ("membership_match(color, {set})", build_bloom_filter(["red", "", "ü"]), [0, 3, 4]),
        ("not membership_match(color, {set})", build_bloom_filter(["red"]), [1, 3, 4]),
        ("membership_match(color, {set})", build_bloom_filter([]), []),
        # in JSON, 1.0 is no whole number, and null is unknown
        ("membership_match(meta['a'], {set})", build_bloom_filter([1]), [0]),
        ("membership_match(meta['a'], {set})", mixed(), [0, 1]),
        ("not membership_match(meta['a'], {set})", build_bloom_filter([1]), [1]),
        ("not membership_match(meta['b'], {set})", build_bloom_filter([1]), []),
    ],
)
def test_members_match(text: str, blob: bytes, rows: list[int]) -> None:
    assert matching(text, blob) == rows


def test_a_bloom_filter_of_many_members_denies_none() -> None:
    members = list(range(0, 300_000, 3))
    bound = compile_filter("membership_match(id, {set})", PLAIN, {"set": build_bloom_filter(members)})
    assert bound.evaluate({"id": pa.array(members)}, len(members)).all()
    others = [member + 1 for member in members]
    found = bound.evaluate({"id": pa.array(others)}, len(others)).sum()
    assert found < len(others) / 50


def test_filters_say_whether_they_are_approximate() -> None:
    bloom, exact = build_bloom_filter([1]), build_roaring_bitmap([1])
    for text in ("membership_match(id, {set})", "id > 1 and not (id == 2 or membership_match(id, {set}))"):
        assert compile_filter(text, PLAIN, {"set": bloom}).is_approximate
        assert not compile_filter(text, PLAIN, {"set": exact}).is_approximate


def test_equal_sets_are_one_filter() -> None:
    def condition(members: list[int]) -> object:
        blob = build_roaring_bitmap(members)
        return shape(compile_filter("membership_match(id, {set})", PLAIN, {"set": blob}).predicate)

    assert condition([1, 2]) == condition([2, 1])
    assert condition([1, 2]) != condition([1, 3])


def test_the_explanation_names_the_kind() -> None:
    bound = compile_filter("id > 1 and membership_match(id, {set})", PLAIN, {"set": build_bloom_filter([1])})
    assert bound.explain() == "(id > 1 and membership_match(id, {bloom}, type=bloom))"


OF_IDS = "membership_match(id, {set})"
EXACT, BLOOM, WORDS = build_roaring_bitmap([1]), build_bloom_filter([1]), build_bloom_filter(["a"])


def changed(blob: bytes, position: int, new: bytes) -> bytes:
    return blob[:position] + new + blob[position + len(new) :]


@pytest.mark.parametrize(
    ("text", "value", "what"),
    [
        ("membership_match(id)", EXACT, "membership_match requires exactly 2 positional"),
        ("membership_match(id, {set}, 3)", EXACT, "membership_match requires exactly 2 positional"),
        (
            "membership_match(5, {set})",
            EXACT,
            "the first argument of membership_match must be",
        ),
        ("membership_match(id, [1])", EXACT, "the second argument of membership_match must be a {template}"),
        ("membership_match(id, {other})", EXACT, "template variable name {other} is not found"),
        (
            OF_IDS,
            [1],
            "{set} must be a client pre-built membership",
        ),
        (OF_IDS, b"MB", "membership filter blob is 2 bytes, too short"),
        (OF_IDS, b"x" * 64, "membership filter blob has unknown format magic"),
        ("membership_match(id, {set}, type=bloom)", EXACT, 'type "bloom" does not match filter blob format'),
        ("membership_match(id, {set}, type=other)", EXACT, "type must be bloom or roaring"),
        ("membership_match(id, {set}, kind=bloom)", BLOOM, "type must be bloom or roaring"),
        (
            "membership_match(color, {set})",
            EXACT,
            "INT8/INT16/INT32/INT64 fields, but field (color)",
        ),
        ("membership_match(meta['a'], {set})", EXACT, "INT64 fields, but field (meta['a']) is of type JSON"),
        (
            "membership_match(price, {set})",
            BLOOM,
            "fields and JSON paths, but field (price) is of",
        ),
        ("membership_match(longs, {set})", BLOOM, "JSON paths, but field (longs) is of type Array"),
        ("membership_match(longs[0], {set})", BLOOM, "does not support nested paths on non-JSON fields"),
        (
            OF_IDS,
            WORDS,
            "built from the utf8 value domain but field (Int64)",
        ),
        (
            "membership_match(color, {set})",
            BLOOM,
            "built from the int64 value domain but field (VarChar)",
        ),
        (OF_IDS, changed(BLOOM, 4, b"\x02"), "its version is 2.1, not 1.1"),
        (OF_IDS, changed(BLOOM, 28, b"\x07"), "unknown value domains 0x07"),
        (OF_IDS, changed(BLOOM, 24, b"\x03"), "its number of blocks is 3"),
        (OF_IDS, changed(BLOOM, 31, b"\x01"), "its reserved bytes are not 0"),
        (OF_IDS, BLOOM + b"\x00", "it has 33 bytes for 1 blocks"),
        (OF_IDS, changed(EXACT, 8, b"\x09"), "it has 1 members, and declares 9"),
        (OF_IDS, EXACT + b"\x00", "it has 31 bytes, and declares 30"),
        (OF_IDS, changed(EXACT, 44, b"\x09"), "has the cookie"),
        ("id == {set}", EXACT, "the value of expression template variable {set} has type bytes"),
        ("match_any(clips, membership_match($[n], {set}))", EXACT, "match_any"),
    ],
)
def test_a_wrong_call_is_refused(text: str, value: object, what: str) -> None:
    with pytest.raises(InvalidFilter) as refusal:
        compile_filter(text, DYNAMIC, {"set": value})
    assert what in refusal.value.message
    assert refusal.value.position is not None


def test_a_large_set_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.expr.membership.MEMBERSHIP_FILTER_MAX_BYTES", 31)
    with pytest.raises(InvalidFilter, match="blob body is 32 bytes, exceeding 31"):
        compile_filter("membership_match(id, {set})", PLAIN, {"set": BLOOM})
    assert limits.MEMBERSHIP_FILTER_MAX_BYTES == 64 << 20
    assert struct.unpack_from("<I", BLOOM, 24) == (1,)


def test_the_page_builds_its_set_and_filters_by_it() -> None:
    page = (Path(__file__).parents[3] / "docs" / "filters.md").read_text()
    (block,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    found: list[list[int]] = []

    class Client:
        def query(self, collection: str, text: str, filter_params: dict[str, Any]) -> None:
            bound = compile_filter(text.replace("owner", "id"), PLAIN, filter_params)
            found.append(bound.evaluate({"id": COLUMNS["id"]}, ROWS).nonzero()[0].tolist())

    exec(block, {"client": Client()})
    assert found == [[0, 1, 2, 4]], "those from 0 to a million"
