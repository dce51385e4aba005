"""Patterns of files: what they mean, and that no pattern takes long."""

from __future__ import annotations

import itertools

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.import_files import check_name, matching

LETTERS = "ab*?/"
NAMES = ["".join(name) for size in (1, 2, 3) for name in itertools.product("ab/", repeat=size)]


def means(pattern: str, name: str) -> bool:
    """The definition, as slow as it is plain."""
    if not pattern:
        return not name
    if pattern.startswith("**/"):
        rest = pattern[3:]
        later = (n + 1 for n, letter in enumerate(name) if letter == "/")
        return means(rest, name) or any(means(rest, name[n:]) for n in later)
    if pattern.startswith("**"):
        return any(means(pattern[2:], name[n:]) for n in range(len(name) + 1))
    if pattern.startswith("*"):
        part = len(name.split("/")[0])
        return any(means(pattern[1:], name[n:]) for n in range(part + 1))
    fits = name[:1] not in ("", "/") if pattern[0] == "?" else name[:1] == pattern[0]
    return fits and means(pattern[1:], name[1:])


def found(pattern: str, paths: list[str]) -> list[str]:
    try:
        return list(matching(pattern, paths))
    except InvalidParameter:
        return []


def test_a_pattern_with_many_wildcards_is_answered_at_once() -> None:
    path = "a" * 60 + ".parquet"
    with pytest.raises(InvalidParameter, match="no file in the import directory matches"):
        matching("*?" * 20 + "x.parquet", [path])
    assert matching("*?" * 20 + ".parquet", [path]) == (path,)
    deep = "a/" * 60 + path
    assert matching("**/*?" * 20 + ".parquet", [deep]) == (deep,)


def test_small_patterns_mean_what_their_definition_says() -> None:
    paths = [f"{name}x.json" for name in NAMES]
    for size in (1, 2, 3, 4):
        for pattern in map("".join, itertools.product(LETTERS, repeat=size)):
            wanted = sorted(f"{name}x.json" for name in NAMES if means(pattern, name))
            assert found(f"{pattern}x.json", paths) == wanted, pattern


@pytest.mark.parametrize(
    "name", ["a+b (1).json", "[ab]{1,2}.json", "a\\d.json", "é-ü.json", "a\nb.json", "$^.json"]
)
def test_all_other_characters_mean_themselves(name: str) -> None:
    others = ["ab.json", "aab (1).json", "b1.json", "a1.json"]
    assert matching(f"*/{name}", [f"x/{path}" for path in (name, *others)]) == (f"x/{name}",)
    assert matching(f"**{name}", [f"x/{name}"]) == (f"x/{name}",)
    assert matching("x/" + "?" * (len(name) - 5) + ".json", [f"x/{name}"]) == (f"x/{name}",)


def test_a_directory_has_all_files_below_it_but_hidden_ones_and_refused_rows() -> None:
    paths = ["a/b.json", "a/c/d.csv", "a/.e.json", "a/f.txt", "b.json", "rejects/1.json"]
    assert matching("a/", paths) == ("a/b.json", "a/c/d.csv")
    assert matching("**", paths) == ("a/b.json", "a/c/d.csv", "b.json")
    assert matching("rejects/*", paths) == ("rejects/1.json",)


def test_names_that_are_not_utf8_do_not_hide_the_others() -> None:
    assert matching("a/*", ["a/\udce9.json", "a/b.json"]) == ("a/b.json", "a/\udce9.json")
    assert matching("*/b.json", ["a/\udce9.json", "a/b.json"]) == ("a/b.json",)


def test_a_pattern_that_is_too_long_is_refused() -> None:
    check_name("?" * 4096)
    with pytest.raises(
        InvalidParameter, match="has 4097 characters; at most 4096: name a directory, or a lis"
    ):
        check_name("*" + "?*" * 2048)
