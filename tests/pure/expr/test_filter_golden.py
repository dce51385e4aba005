"""The language by example: what a filter is bound to, and which rows it finds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from filter_schemas import DYNAMIC, PLAIN, TEXT_KEY

from elanus.expr import BoundFilter, compile_filter

BOUND = [
    # comparisons, both ways round, chained, between fields
    ("price > 10", "price > 10"),
    ("10 < price", "price > 10"),
    ("10 >= price", "price <= 10"),
    ("1 < tiny <= 5", "(tiny > 1 and tiny <= 5)"),
    ("5 >= tiny > 1", "(tiny <= 5 and tiny > 1)"),
    ("tiny < id", "tiny < id"),
    ("tiny != price", "tiny != price"),
    ('color == "red"', 'color == "red"'),
    ("flag == True", "flag == true"),
    ("score == 0.1", "score == 0.10000000149011612"),
    # precedence: or, and, not, comparison, + -, * / %, sign, **
    ("id == 1 or id == 2 and tiny == 3", "(id == 1 or (id == 2 and tiny == 3))"),
    ("(id == 1 or id == 2) and tiny == 3", "(tiny == 3 and (id == 1 or id == 2))"),
    ("not id == 1 and tiny == 3", "(id != 1 and tiny == 3)"),
    ("id + 2 * 3 == 7", "(id + 6) == 7"),
    ("id * 2 + 1 % 3 == 7", "((id * 2) + 1) == 7"),
    ("id - 1 - 2 == 0", "((id - 1) - 2) == 0"),
    ("price > -2 ** 2", "price > -4.0"),
    ("price > 2 ** 3 ** 2", "price > 64.0"),
    ("price > (-2) ** 2", "price > 4.0"),
    ("-tiny > 3", "(tiny * (-1)) > 3"),
    ("+tiny > 3", "tiny > 3"),
    ("5 - price / 2 > 5", "(5 - (price / 2)) > 5"),
    ("2 ** -1 * 4 > price", "price < 2.0"),
    # constants fold, whole numbers as in C
    ("id == 7 / 2", "id == 3"),
    ("id == -7 / 2", "id == -3"),
    ("id == -7 % 3", "id == -1"),
    ("price == 7 / 2.0", "price == 3.5"),
    ("id in [300/2, 900%40, -10*30+800, 2048/2%200]", "id in [150, 20, 500, 24]"),
    ("1 < 2 and id > 0", "id > 0"),
    ("1 > 2 and id > 0", "1 == 0"),
    ("1 > 2 or id > 0", "id > 0"),
    ('"a" < "b"', "1 == 1"),
    ("not TRUE", "1 == 0"),
    ("True or false", "1 == 1"),
    ("not (TRUE)", "1 == 0"),
    ("1 == 1 and id > 0", "id > 0"),
    ("id > 0 or 1 == 2", "id > 0"),
    # logic: the cheapest first, flat, and negation pushed to the leaves
    ('name like "%a%" and color in ["x"] and id > 3', '(id > 3 and color in ["x"] and name like "%a%")'),
    ("id > 1 && (id > 2 && (id > 3 && id > 4))", "(id > 1 and id > 2 and id > 3 and id > 4)"),
    ("not (id > 1 and (tiny < 2 or flag != true))", "(id <= 1 or (tiny >= 2 and flag == true))"),
    ("!(id in [1]) || NOT tiny is null", "(tiny is not null or id not in [1])"),
    ("not not not id == 1", "id != 1"),
    # arrays: literals as written, and the elements' own type to look them up
    ("longs[0] == 1", "longs[0] == 1"),
    ("1 < longs[2] <= 5", "(longs[2] > 1 and longs[2] <= 5)"),
    ("floats[0] == 0.1", "floats[0] == 0.10000000149011612"),
    ("[1, 2.0] != longs", "longs != [1, 2.0]"),
    ("not longs == []", "longs != []"),
    ("ARRAY_CONTAINS(labels, 'a')", 'array_contains_any(labels, ["a"])'),
    ("not json_contains_all(bytes, [1, 300])", "not array_contains_all(bytes, [1, 300])"),
    ("array_contains_all(labels, [])", "array_contains_all(labels, [])"),  # unknown where it is null
    ("array_contains_any(labels, [])", "array_contains_any(labels, [])"),
    ("array_length(longs) > 2", "array_length(longs) > 2"),
    # bits
    ("id & 6 == 2", "(id & 6) == 2"),
    ("(id & 6) | 1 == 3", "((id & 6) | 1) == 3"),
    ("id | 1 ^ 2 & 3 << 1 + 1 == 4", "(id | 1) == 4"),
    ("id >> 2 & 1 == 1", "((id >> 2) & 1) == 1"),
    ("~id == -1", "(id ^ (-1)) == -1"),
    ("id == ~0x0F", "id == -16"),
    ("id == 1 << 63", "id == -9223372036854775808"),
    ("id == -9 >> 1", "id == -5"),
    # regular expressions, raw strings, samples
    ("color =~ '^a'", 'color =~ "^a"'),
    (r"color !~ r'\d+\'x'", 'color !~ "\\\\d+\\\\\'x"'),
    (r'meta[r"a\b"] like R"\%%"', r'meta["a\\b"] like "\\%%"'),
    (r"color in [r'a\b', 'b']", 'color in ["a\\\\b", "b"]'),
    ("not color =~ 'a' or not (labels[0] !~ 'b')", '(color !~ "a" or labels[0] =~ "b")'),
    ("RANDOM_SAMPLE(0.25)", "random_sample(0.25)"),
    ("id > 1 && (color == 'a' and random_sample(.5))", '(id > 1 and color == "a" and random_sample(0.5))'),
    ('array_length(meta["l"]) == 0', 'array_length(meta["l"]) == 0'),
    # in, like, null
    ("id in []", "id in []"),
    ("id not in [3, 1, 3]", "id not in [3, 1]"),
    ("tiny in [1, 1000]", "tiny in [1]"),
    ("price in [1, 2.5]", "price in [1.0, 2.5]"),
    ("flag in [true, False]", "flag in [true, false]"),
    ("color in ['a', \"b\",]", 'color in ["a", "b"]'),
    ("color LIKE 'a%'", 'color like "a%"'),
    ('color like "100\\%"', 'color like "100\\\\%"'),
    ("color IS NOT NULL", "color is not null"),
    ("color Is  nULL", "color is null"),
    # JSON and the dynamic field
    ('meta["a"]["b"][0] == 1', 'meta["a"]["b"][0] == 1'),
    ("meta['a'] == \"x\"", 'meta["a"] == "x"'),
    ('exists meta["a"]', 'meta["a"] is not null'),
    ('not EXISTS meta["a"]', 'meta["a"] is null'),
    ("brand == 'acme'", '$meta["brand"] == "acme"'),
    ('$meta["brand"] == "acme"', '$meta["brand"] == "acme"'),
    ('brand["country"] == "fr"', '$meta["brand"]["country"] == "fr"'),
    ('meta["a"] == [1, "x"]', 'meta["a"] in [[1, "x"]]'),
    ('meta["a"] + 1 == 3', '(meta["a"] + 1) == 3'),
    ('json_contains(meta["a"], 1)', 'json_contains_any(meta["a"], [1])'),
    ('JSON_CONTAINS_ALL(meta["a"], [1, "x"])', 'json_contains_all(meta["a"], [1, "x"])'),
    ('not json_contains_any(a, [[1]])', 'not json_contains_any($meta["a"], [[1]])'),
    ('array_contains(meta["a"], 1)', 'json_contains_any(meta["a"], [1])'),
    ('json_contains_any(meta["a"], [])', "1 == 0"),
    ('json_contains_all(meta["a"], [])', "1 == 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "explained"), BOUND)
def test_a_filter_is_bound_to(text: str, explained: str) -> None:
    assert compile_filter(text, DYNAMIC).explain() == explained


def test_a_long_list_is_explained_in_short() -> None:
    text = f"id in {list(range(20_000))}"
    assert compile_filter(text, PLAIN).explain() == "id in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 19,990 more]"


COLUMNS = {
    "id": pa.array([0, 1, 2, 3, 4, 5]),
    "tiny": pa.array([1, -7, None, 127, 0, 2], pa.int8()),
    "price": pa.array([0.5, 10.0, 20.25, None, -1.0, 3.0]),
    "score": pa.array([0.1, 0.2, None, 1.0, 2.0, 0.1], pa.float32()),
    "color": pa.array(["red", "blue", None, "red%", "re\nd", ""]),
    "name": pa.array(["red", "a", "b", "c", "d", "e"]),
    "flag": pa.array([True, False, None, True, True, False]),
    "meta": pa.array(
        [
            '{"a": 1, "l": [1, 2]}',
            '{"a": "1", "l": []}',
            None,
            '{"a": null}',
            '{"a": 2.0, "l": ["x", 1.0]}',
            "null",
        ]
    ),
    "$meta": pa.array(['{"k": {"n": true}}', '{"k": 5}', "{}", '{"k": null}', '{"k": "5"}', '{"k": 6}']),
}

FOUND = [
    ("", [0, 1, 2, 3, 4, 5]),
    ("tiny % 2 == -1", [1]),
    ("tiny / 2 == -3", [1]),
    ("10 / tiny == 10", [0]),
    ("not (10 / tiny == 10)", [1, 3, 5]),  # a zero divisor, like a null, is unknown either way
    ("tiny > 1000", []),
    ("not (tiny > 1000)", [0, 1, 3, 4, 5]),
    ("tiny < 2", [0, 1, 4]),
    ("tiny == 1000 or tiny != 2", [0, 1, 3, 4]),
    ("score == 0.1", [0, 5]),
    ("score in [0.1, 1]", [0, 3, 5]),
    ("tiny & 3 == 3", [3]),
    ("(tiny | 8) > 8", [0, 3, 5]),
    ("~tiny == -3", [5]),
    ("tiny >> 1 == -4", [1]),
    ("tiny << 60 < 0", [1, 3]),
    ("color =~ 'e.'", [0, 3, 4]),
    ("color =~ '(?-s)e.'", [0, 3]),
    ("color !~ '(?i)RED'", [1, 4, 5]),
    ("color =~ ''", [0, 1, 3, 4, 5]),
    ("k =~ '5'", [4]),
    ("k !~ '5'", [0, 1, 2, 3, 5]),
    ("not (k =~ '5')", [0, 1, 2, 3, 5]),
    ("meta['a'] !~ '1'", [0, 3, 4, 5]),  # not where the whole field is null
    ("meta =~ '1'", []),
    ("color == name", [0]),
    ("color < name", [5]),
    ("color != 'red'", [1, 3, 4, 5]),
    ("not (color == 'red')", [1, 3, 4, 5]),
    ("color not in ['red', 'blue']", [3, 4, 5]),
    ("color not in []", [0, 1, 3, 4, 5]),
    ("color like 'red_'", [3]),
    ("color like 're_d'", [4]),
    ("color like '%e%'", [0, 1, 3, 4]),
    ("color like 'red\\%'", [3]),
    ("color like '%'", [0, 1, 3, 4, 5]),
    ("flag == true or tiny is null", [0, 2, 3, 4]),
    ("flag != true", [1, 5]),
    # null and anything is unknown unless the other side decides
    ("price > 0 or flag == true", [0, 1, 2, 3, 4, 5]),
    ("price > 0 and flag == true", [0]),
    ("not (price > 0 and flag == true)", [1, 4, 5]),
    # JSON: typed row by row; missing, null and other types are unknown
    ('meta["a"] == 1', [0]),
    ('meta["a"] == "1"', [1]),
    ('meta["a"] > 0', [0, 4]),
    ('meta["a"] != 1', [4]),
    ('not (meta["a"] == 1)', [4]),
    ('meta["a"] in [1, 2, "x"]', [0, 4]),
    ('meta["a"] not in [1, "x"]', [1, 4]),
    ('meta["a"] is null', [2, 3, 5]),
    ('exists meta["a"]', [0, 1, 4]),
    ("meta is null", [2]),
    ('meta["l"][0] == 1', [0]),
    ('meta["l"][7] == 1', []),
    ('json_contains(meta["l"], 1)', [0, 4]),
    ('not json_contains(meta["l"], 1)', [1]),
    ('json_contains_all(meta["l"], [1, 2])', [0]),
    ('json_contains_any(meta["l"], ["x", 2])', [0, 4]),
    ("k == 5", [1]),
    ('k["n"] == true', [0]),
    ('k like "5%"', [4]),
    ("k % 4 == 1", [1]),
    ("k is null", [2, 3]),
]


@pytest.mark.parametrize(("text", "ids"), FOUND)
def test_a_filter_finds(text: str, ids: list[int]) -> None:
    assert compile_filter(text, DYNAMIC).evaluate(COLUMNS, 6).nonzero()[0].tolist() == ids


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("id > 3 and color in ['a']", {"id", "color"}),
        ("price > score or -tiny > 1", {"price", "score", "tiny"}),
        ("color =~ 'a' and random_sample(0.5)", {"id", "color"}),
        ("anything == 1 or meta['x'] == 1", {"$meta", "meta"}),
        ("json_contains(tags, 1) and not (name like 'a%' or flag is null)", {"$meta", "name", "flag"}),
        ("1 > 2 and id > 3", set()),
    ],
)
def test_a_filter_names_the_columns_it_reads(text: str, names: set[str]) -> None:
    assert compile_filter(text, DYNAMIC).field_names == names


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("id == 7", [7]),
        ("7 == id", [7]),
        ("id in [3, 1, 3]", [3, 1]),
        ("id in []", []),
        ("(id in [3])", [3]),
        ("id != 7", None),
        ("id not in [3]", None),
        ("id in [3] and price > 1", None),
        ("id == 1 or id == 2", None),
        ("id > 7", None),
        ("id == tiny", None),
        ("id + 0 == 7", None),
        ("tiny == 7", None),
        ("", None),
    ],
)
def test_a_filter_of_primary_keys_alone_gives_them(text: str, keys: list[int] | None) -> None:
    found = compile_filter(text, DYNAMIC).primary_keys()
    assert (found if found is None else found.to_pylist()) == keys
    assert found is None or found.type == pa.int64()


def test_text_keys_come_as_text() -> None:
    assert compile_filter("key in ['b', 'a']", TEXT_KEY).primary_keys() == pa.array(["b", "a"])
    assert compile_filter('"b" == key', TEXT_KEY).primary_keys() == pa.array(["b"])


@pytest.mark.parametrize(
    ("text", "matches_all"),
    [("", True), (" \n\t ", True), ("1 == 1", True), ("1 == 2", False), ("id == id", False)],
)
def test_a_blank_filter_matches_all(text: str, matches_all: bool) -> None:
    assert compile_filter(text, PLAIN).matches_all is matches_all


def test_a_filter_is_equal_to_itself_only() -> None:
    one, other = compile_filter("id > 1", PLAIN), compile_filter("id > 1", PLAIN)
    cache: dict[BoundFilter, str] = {one: "one", other: "other"}
    assert cache[one] == "one"
    assert one != other
