"""Refused filters: the position of the error, and the words that clients of the reference look for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from filter_schemas import DYNAMIC, PLAIN

from elanus.core import limits
from elanus.core.errors import InvalidFilter
from elanus.core.schema import CollectionSchema
from elanus.expr import compile_filter, parse


def refused(
    text: str, schema: CollectionSchema = PLAIN, values: dict[str, Any] | None = None
) -> InvalidFilter:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(text, schema, values)
    return caught.value


SYNTAX = [
    ("id inn [1, 2]", 3, "did you mean 'in'?"),
    ("id = 1", 3, "write '=='"),
    ("id <> 1", 4, "write '!='"),
    ("id > 1 & ) < 3", 9, "a field, a value or '(' is due"),
    ("id > 1 And id < 3", 7, "did you mean 'and'?"),
    ("id == ", 6, "ends too early: a field, a value or '(' is due"),
    ("(id == 1", 8, "ends too early: an operator or a closing bracket is due"),
    ("id == 1)", 7, "unexpected ')'"),
    ("id in [1, 2", 11, "ends too early"),
    ("id in [()]", 8, "unexpected ')'"),
    ("id in [{}]", 7, "{name}"),
    ("color == 'O'Reilly'", 12, "unexpected 'Reilly'"),
    ('color == "red', 9, "not closed by a double quote"),
    ("color == `red`", 9, "quotes"),
    ("meta['a' >= 3", 9, "']' is due"),
    ("meta[-1] > 3", 5, "an index (0, 1, …) or a quoted key is due"),
    ("1 < id < 5 < 7", 11, "join further comparisons with 'and'"),
    ("中文 == 1", 0, "letters"),
    ("json_contains_any(meta, (1, 2))", 26, "unexpected ','"),
    ("name\n  == 'a' or\n  #", 19, "unexpected '#'"),
]


@pytest.mark.parametrize(("text", "position", "remedy"), SYNTAX)
def test_a_syntax_error_says_where_and_what_to_do(text: str, position: int, remedy: str) -> None:
    error = refused(text)
    assert error.position == position
    what = f"cannot parse expression: {text}, error: invalid expression: {text}: invalid parameter"
    assert error.message.startswith(f"{what} at position {position}: ")
    assert remedy in error.message


MEANING = [
    # fields
    ("prise > 1", 0, "field prise not exist", "did you mean 'price'?"),
    ("id > 1 and nothing == 2", 11, "field nothing not exist", "the collection has id, tiny"),
    ("id == null", 6, "NULL literal is not supported in expressions", "'is null'"),
    ("id in [1, NULL, 2]", 10, "NULL literal is not supported in expressions", "'is null'"),
    ("$meta['a'] == 1", 0, "field $meta not exist", ""),
    ("id[0] == 1", 0, "Int64 data type not supported accessed with []", "write id alone"),
    ('meta[""] == 1', 0, 'invalid identifier: meta[""]', ""),
    # types of comparisons
    ("color == 0", 0, "comparisons between VarChar and Int64 are not supported", "text in quotes"),
    ("id == 1 or 0 < color", 11, "comparisons between Int64 and VarChar are not supported", "text in quotes"),
    ("id == '1'", 0, "comparisons between Int64 and VarChar are not supported", "without quotes"),
    ("color == tiny", 0, "comparisons between VarChar and Int8 are not supported", ""),
    ("flag == 1", 0, "comparisons between Bool and Int64 are not supported", "'== true'"),
    ("flag > true", 0, "comparisons between Bool and Bool are not supported", ""),
    ("id == [1, 2]", 0, "comparisons between Int64 and Array are not supported", ""),
    ("meta > [1, 2]", 0, "comparisons between JSON and Array are not supported", "only == and !="),
    ("vector == 1", 0, "comparisons between FloatVector and Int64 are not supported", "vector fields cannot"),
    ("id < vector", 0, "comparisons between Int64 and FloatVector are not supported", ""),
    ("meta['a'] == id", 0, "two column comparison with JSON type is not supported", "literals"),
    ("meta['a'] + 1 == id", 0, "two column comparison with JSON type is not supported", ""),
    ("price + 1 == score", 0, "only comparison between two fields is supported: price + 1 == score", ""),
    ("array_length(longs) == id", 0, "only comparison between two fields is supported", ""),
    ("id > 17.5", 0, "cannot cast value to Int64, value: float_val:17.5", "whole numbers"),
    ("longs[0] == 0.5", 0, "cannot cast value to Int64, value: float_val:0.5", "whole numbers"),
    ("id * 2 == 0.5", 0, "cannot cast value to Int64, value: float_val:0.5", "whole numbers"),
    ("0.5 < id < 3", 0, "invalid range operations", "whole number"),
    ("true == 1", 0, "comparison operations cannot be applied to two incompatible operands: true == 1", ""),
    ("json_contains(meta, 1) == true", 0, "a condition cannot be used as a value", "'and'"),
    ("(id > 1) == true", 0, "a condition cannot be used as a value: (id > 1)", ""),
    # chains
    ("1 < id > 2", 0, "invalid range operations", "one way"),
    ("1 == id == 2", 0, "invalid range operations", "one way"),
    ("1.0 < id < 5", 0, "invalid range operations", "whole number"),
    ("'a' < id < 'b'", 0, "invalid range operations", "whole number"),
    ("0 < price < 'a'", 0, "invalid range operations", "number"),
    ("0 < color < 1", 0, "invalid range operations", "text in quotes"),
    ("1 < longs[0] < 2.0", 0, "invalid range operations", "whole number"),
    ("false < flag < true", 0, "invalid range operations on boolean expr", "== true"),
    ("1 < id < tiny", 0, "upperbound cannot be a non-const expression", "'and'"),
    ("tiny > id > 1", 0, "upperbound cannot be a non-const expression", ""),
    ("5 < id < 1", 0, "invalid range: lowerbound is greater than upperbound", "exchange"),
    ("1 <= id < 1", 0, "invalid range: lowerbound is greater than upperbound", ""),
    # numbers
    ("id == 9223372036854775808", 6, "value out of range: 9223372036854775808", "64 bits"),
    ("id + 9223372036854775808 > 1", 5, "value out of range: 9223372036854775808", "64 bits"),
    ("id in [1, -9223372036854775809]", 10, "value out of range: -9223372036854775809", "64 bits"),
    ("id == 089", 6, "invalid literal: 089", "octal"),
    ("id / 0 == 1", 5, "division or modulus by zero", ""),
    ("id % (2 - 2) == 1", 5, "division or modulus by zero", ""),
    ("id % 2.5 == 1", 0, "modulo can only apply on integer types", ""),
    ("id > 1 & id < 3", 0, "invalid range operations", ""),
    ("1 < id + 1 < 3", 4, "range operations are only supported on single fields now, got: id + 1", "'and'"),
    ("id ** 2 == 9", 0, "power can only apply on constants: id ** 2", ""),
    ("2 ** id == 9", 0, "power can only apply on constants: 2 ** id", ""),
    ("id + tiny == 6", 0, "not supported to do arithmetic operations between multiple fields: id + tiny", ""),
    ("id + array_length(longs) == 6", 0, "complicated arithmetic operations are not supported", ""),
    ("-array_length(longs) == 6", 0, "complicated arithmetic operations are not supported", ""),
    ("price & 1 == 1", 0, "bitwise operations can only apply on integer types", "'&'"),
    ("meta['a'] | 1.5 == 1", 0, "bitwise operations can only apply on integer types", "'|'"),
    ("~price == 1", 0, "bitwise operations can only apply on integer types", "'~'"),
    ("color ^ 1 == 1", 0, "'bitxor' cannot perform arithmetic between VarChar field and Int64", ""),
    ("id << 64 == 1", 6, "shift amount must be in range [0, 64), but got: 64", ""),
    ("id >> -1 == 1", 6, "shift amount must be in range [0, 64), but got: -1", ""),
    ("price == 10 ** 400", 9, "no value for 10 ** 400", ""),
    ("color + 1 == 2", 0, "'add' cannot perform arithmetic between VarChar field and Int64", ""),
    ("-color == 2", 0, "'subtract' cannot perform arithmetic", ""),
    ("id * true == 2", 0, "'multiply' cannot perform arithmetic between Int64 field and Bool", ""),
    # logic
    ("!flag", 1, "not op can only be applied on boolean expression", "write 'flag == true'"),
    ("id > 0 and flag", 11, "'and' can only be used between boolean expressions", "write 'flag == true'"),
    ("id > 0 or false", 10, "'or' can only be used between boolean expressions", "leave it out"),
    ("id in not [1, 2]", 6, "not can only apply on boolean", "not in"),
    # in
    ("id in 1", 6, "the right-hand side of 'in' must be a list, but got: 1", "[1, 2, 3]"),
    ('id in "in"', 6, "the right-hand side of 'in' must be a list", ""),
    ("id in (tiny)", 6, "value '(tiny)' in list cannot be a non-const expression", ""),
    ("id in [tiny]", 7, "array element type must be generic value, but got: tiny", ""),
    ("id == 1.0", 0, "cannot cast value to Int64, value: float_val:1", "whole numbers"),
    ("1e3 > id", 0, "cannot cast value to Int64, value: float_val:1000", "whole numbers"),
    ("id + 1 == 2.0", 0, "cannot cast value to Int64, value: float_val:2", "whole numbers"),
    ("longs[0] == 1.0", 0, "cannot cast value to Int64, value: float_val:1", "whole numbers"),
    ("id in [1.0, 2.0]", 7, "value 'float_val:1' in list cannot be casted to Int64", "whole number"),
    ("id in [1, 2.5]", 10, "value 'float_val:2.5' in list cannot be casted to Int64", ""),
    ('color in ["a", "b", 7]', 20, "value 'int64_val:7' in list cannot be casted to VarChar", "quotes"),
    ("flag in [2 - 1]", 9, "value 'int64_val:1' in list cannot be casted to Bool", ""),
    ("price in ['1']", 10, "value 'string_val:\"1\"' in list cannot be casted to Double", ""),
    ("id in [true]", 7, "value 'bool_val:true' in list cannot be casted to Int64", ""),
    ("id in [[1]]", 7, "value 'array_val:[1]' in list cannot be casted to Int64", ""),
    ("vector in [0]", 11, "value 'int64_val:0' in list cannot be casted to FloatVector", ""),
    ("vector in []", 0, "'in' is not supported on FloatVector", ""),
    ("1 in [1, 2]", 0, "'term' can only be used on non-const expression, but got: 1", ""),
    ("tiny % 13 in [0]", 0, "'term' can only be used on single field, but got: tiny % 13", ""),
    # like, null, exists, functions
    ("price like '1%'", 0, "like operation on non-string or no-json field is unsupported", "price is Double"),
    ("'a' like 'a%'", 0, "like operation on complicated expr is unsupported", ""),
    ("color like 5", 11, "the pattern of like must be a string", ""),
    ("vector is not null", 0, "unsupported data type: VECTOR_FLOAT", ""),
    ("longs[0] is null", 0, "IsNull/IsNotNull operations are not supported on array", "array_length(longs)"),
    ("longs[0] is not null", 0, "IsNull/IsNotNull operations are not supported on array", ""),
    ("id + 1 is null", 0, "null tests are only supported on single fields", ""),
    ("exists id", 7, "exists operations are only supportted on json field, got:Int64", "is not null"),
    ("exists meta", 7, "exists operations are only supportted on json key", 'meta["key"]'),
    ("exists 5", 7, "exists operations are only supported on single fields now", ""),
    ("json_contains(id, 1)", 14, "contains operation are only supported on json or array fields now", "JSON"),
    ("json_contains(meta, id)", 20, "contains operation are only supported explicitly specified element", ""),
    ("json_contains_all(meta['l'], 2)", 29, "contains_all operation element must be an array", ""),
    ("JSON_CONTAINS_ANY(meta['l'], 'str')", 29, "contains_any operation element must be an array", ""),
    ("st_contain(meta, 'x')", 0, "function st_contain is not supported", "st_contains"),
    ("json_contains(meta)", 0, "json_contains takes 2 arguments, but got 1", ""),
    # regular expressions
    ("id =~ '42'", 0, "regex match on non-string or non-json field is unsupported", "id is Int64"),
    ("labels =~ 'a'", 0, "can not comparisons array fields directly", ""),
    ("id + 1 =~ 'a'", 0, "regex match on complicated expr is unsupported", ""),
    ("color =~ 123", 9, "regex pattern must be a string literal or template variable, got: 123", "quotes"),
    ("color =~ name", 9, "regex pattern must be a string literal or template variable, got: name", ""),
    ("color !~ [1, 2]", 9, "regex pattern must be a string literal or template variable, got: [1, 2]", ""),
    ("color =~ '(unclosed'", 9, "invalid regex pattern: (unclosed: missing closing ): (unclosed", "RE2"),
    ("color =~ '['", 9, "invalid regex pattern: [: missing closing ]: [", ""),
    (r"color =~ '(a)\\1'", 9, "invalid regex pattern: ", ""),
    (r"color =~ r'\k'", 9, "invalid regex pattern: ", ""),
    ("color =~ 'E(?= 1)'", 9, "invalid regex pattern: ", ""),
    # samples
    ("random_sample(1)", 14, "sample factor should be in range (0, 1) exclusive, but got 1", "0.1"),
    ("random_sample(1.0)", 14, "sample factor should be in range (0, 1) exclusive, but got 1.0", ""),
    ("random_sample(-0.5)", 14, "sample factor should be in range (0, 1) exclusive, but got -0.5", ""),
    ("random_sample(id)", 0, '"float factor" should be a const float expression', ""),
    ("random_sample()", 0, '"float factor" should be a const float expression', ""),
    ("not random_sample(0.5)", 0, "random sample expression cannot be used in unary expression", ""),
    ("id > 1 or random_sample(0.5)", 0, "random sample expression cannot be used in logical or", "'.. and"),
    ("random_sample(0.5) and id > 1", 0, "random sample expression can only be the last", "'.. and"),
    ("(id > 1 and random_sample(.5)) or id < 0", 0, "random sample expression cannot be used in logical", ""),
    # arrays
    ("longs > [1]", 0, "can not comparisons array fields directly", "longs[0] > 1"),
    ("longs == longs", 0, "can not comparisons array fields directly", ""),
    ("1 < longs < 3", 0, "can not comparisons array fields directly", ""),
    ("longs + 1 == 2", 0, "can not comparisons array fields directly", "longs[0] + 1"),
    ("labels like 'a%'", 0, "can not comparisons array fields directly", ""),
    ("longs == 1", 0, "cannot cast value to Array, value: int64_val:1", "longs == [..]"),
    ("longs == 'a'", 0, "comparisons between Array[Int64] and VarChar are not supported", "type Int64"),
    ("labels != ['a', 1]", 0, "comparisons between Array[VarChar] and Array[Int64] are not supported", ""),
    ("longs['0'] == 1", 0, "can only access array field with integer index", "longs[0]"),
    ("longs[0][1] == 1", 0, "Int64 data type not supported accessed with []", "one index"),
    ("longs[0] == 'a'", 0, "comparisons between Int64 and VarChar are not supported", ""),
    ("longs[0] in ['a']", 13, "value 'string_val:\"a\"' in list cannot be casted to Int64", ""),
    ("longs in [[1]]", 10, "value 'array_val:[1]' in list cannot be casted to Array", "lists know only =="),
    ("bytes[0] like 'a%'", 0, "like operation on non-string or no-json field is unsupported", "Int8"),
    ("exists longs[0]", 7, "exists operations are only supportted on json field, got:Array", ""),
    ("array_contains(longs[0], 1)", 15, "contains operation are only supported on json or array fields", ""),
    ("array_contains(longs, 'a')", 22, "cannot cast value to Int64, value: string_val:\"a\": contains "
     "operation can't compare between array element type: Int64 and VarChar", "type Int64"),
    ("array_contains(longs, 1.0)", 22, "cannot cast value to Int64, value: float_val:1", "type Int64"),
    ("array_contains(longs, [1])", 22, "cannot cast value to Int64, value: array_val:[1]", ""),
    ("array_contains_all(labels, ['a', true])", 27, "contains_all operation can't compare between array "
     "element type: VarChar and Bool", ""),
    ("array_contains_any(longs, 1)", 26, "contains_any operation element must be an array", ""),
    ("array_length(id) == 1", 0, "array_length operation are only supported on json or array fields now, "
     "got: array_length(id)", ""),
    ("array_length(longs, 1) == 1", 0, "array_length operation are only supported on json or array", ""),
    ("text_match(color, 'a')", 11, 'field "color" does not enable match', "enable_match"),
    ("phrase_match(color, 'a', 1)", 13, 'field "color" does not enable match', "enable_match"),
    ("text_match(id, 'a')", 11, "text match operation on non-string is unsupported", "VarChar"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "position", "what", "remedy"), MEANING)
def test_a_binding_error_says_what_where_and_what_to_do(
    text: str, position: int, what: str, remedy: str
) -> None:
    error = refused(text)
    assert error.message.startswith(f"cannot parse expression: {text}, error: {what}")
    assert f": invalid parameter at position {position}: " in error.message
    assert error.position == position
    assert remedy in error.message.rpartition(f"at position {position}: ")[2]


@pytest.mark.parametrize(
    ("text", "data_type", "remedy"),
    [
        ("12-s", "Int64", "compare it"),
        ("s", "JSON", "compare it"),
        ("flag", "Bool", "write 'flag == true'"),
        ("price * 2", "Double", "compare it"),
        ('"text"', "VarChar", "compare it"),
        ("true", "Bool", "leave it out"),
        ("FALSE", "Bool", "leave it out"),
        ("[1]", "Array", "compare it"),
        ("longs", "Array", "compare it"),
        ("array_length(longs)", "Int64", "compare it"),
        ("flags[0]", "Bool", "flags[0] == true"),
    ],
)
def test_a_value_is_no_filter(text: str, data_type: str, remedy: str) -> None:
    message = refused(text, DYNAMIC).message
    what = f"predicate is not a boolean expression: {text}, data type: {data_type}"
    assert message.startswith(f"{what}: invalid parameter at position 0: ")
    assert remedy in message


def test_an_unquoted_word_is_taken_for_a_dynamic_key_and_the_error_says_so() -> None:
    assert refused("color == red", DYNAMIC).message.endswith('if text is meant, write "red"')


def test_a_long_filter_is_shown_in_short() -> None:
    error = refused(f"id in {list(range(50_000))} and prise > 1")
    assert len(error.message) < 600
    assert error.position == len(f"id in {list(range(50_000))} and ")


@pytest.mark.parametrize(
    "text",
    [
        "not " * 300 + "id == 1",
        "id == " + "-" * 300 + "1",
        "id == 1" + " + 1" * 300,
        "meta in " + "[" * 300 + "]" * 300,
        "not (id > 1 and " * 150 + "id == 1" + ")" * 150,
        "(" * 5000 + "not " * 5000 + "id == 1" + ")" * 5000,
    ],
)
def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack(text: str) -> None:
    assert f"nested deeper than {limits.FILTER_DEPTH_MAX} levels" in refused(text).message


@pytest.mark.parametrize("text", ["meta" + "['a']" * 201 + " == 1", "extra" + "[0]" * 3000 + " == 1"])
def test_a_path_has_so_many_steps(text: str) -> None:
    assert f"the path has more than {limits.FILTER_DEPTH_MAX} steps" in refused(text, DYNAMIC).message
    longest = "meta" + "['a']" * limits.FILTER_DEPTH_MAX
    found = compile_filter(f"{longest} == 1", DYNAMIC).evaluate({"meta": pa.array(['{"a":1}'])}, 1)
    assert not found.any()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200_000 + "id == 1" + ")" * 200_000,
        "(" * 10_000,
        "meta in " + "[" * 400_000,
        "not (" * 90_000,
        "json_contains(" * 30_000,
        "'((' == color and " + "((" * 10_000,
    ],
)
def test_thousands_of_brackets_are_refused_before_they_are_parsed(text: str) -> None:
    error = refused(text)
    assert f"nested deeper than {limits.FILTER_BRACKETS_MAX} brackets" in error.message
    assert error.position is not None
    assert text[error.position] in "(["


def test_brackets_in_texts_and_next_to_each_other_do_not_count() -> None:
    texts = " or ".join(["color == '((((([[[[['"] * 600)
    assert compile_filter(texts, PLAIN).explain().count("(") == 3001
    apart = " or ".join(f"(((((id == {number})))))" for number in range(1100))
    assert compile_filter(apart, PLAIN).explain().count(" or ") == 1099


def test_parentheses_and_chains_of_one_operator_are_not_deep() -> None:
    assert compile_filter("(" * 5000 + "id == 1" + ")" * 5000, PLAIN).explain() == "id == 1"
    nested = "(id != 0 or " * 1000 + "id != 1" + ")" * 1000
    assert compile_filter(nested, PLAIN).explain().count(" or ") == 1000


def test_a_filter_of_more_characters_than_allowed_is_refused() -> None:
    text = "id == 1" + " " * limits.FILTER_LENGTH_MAX_CHARS
    assert f"longer than {limits.FILTER_LENGTH_MAX_CHARS} characters" in refused(text).message


def test_only_lists_of_plain_literals_may_be_long() -> None:
    keys = ",".join(map(str, range(limits.FILTER_UNLISTED_MAX_CHARS // 4)))
    assert len(keys) > limits.FILTER_UNLISTED_MAX_CHARS
    assert compile_filter(f"id in [{keys}] and not id in [{keys}]", PLAIN) is not None
    for spoiled in (f"id in [{keys},x]", f"id in [{keys}", f"id in [{keys},,]"):
        message = refused(spoiled).message
        # Python before 3.11.5 takes two commas for one, until the list is decoded
        assert "outside of lists of plain literals" in message or "comma no neighbor" in message


def test_threads_that_need_the_parser_at_once_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each created one of its own, and Python's ast failed in some of them."""
    created: list[object] = []

    def create(*_: object, **__: object) -> object:
        created.append(object())
        time.sleep(0.05)  # the others come meanwhile
        return created[-1]

    monkeypatch.setattr("lark.Lark.open_from_package", create)
    together = threading.Barrier(4)

    def needed() -> object:
        together.wait()
        return parse.parser()

    _forget_parser()
    try:
        with ThreadPoolExecutor(4) as threads:
            found = {future.result() for future in [threads.submit(needed) for _ in range(4)]}
    finally:
        _forget_parser()
    assert len(created) == len(found) == 1


def _forget_parser() -> None:
    parse.parser.cache_clear()
    parse._created.cache_clear()
