"""Properties of a collection that clients change, and the two that stand for something else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import collection

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter
from elanus.core.limits import PROPERTIES_MAX
from elanus.core.property_changes import (
    changed_properties,
    check_property_change,
    check_property_count,
    collection_needs_release,
    with_changed_properties,
)

PLAIN = replace(collection(), properties={"a": "1", "b": "2"})


def test_properties_are_set_and_dropped() -> None:
    assert dict(with_changed_properties(PLAIN, {"a": "3", "c": "4"}, ()).properties) == {
        "a": "3",
        "b": "2",
        "c": "4",
    }
    assert dict(with_changed_properties(PLAIN, {}, ("a", "nope")).properties) == {"b": "2"}


@pytest.mark.parametrize("level", ["Strong", "STRONG", "0"])
def test_the_description_and_the_consistency_level_are_no_properties(level: str) -> None:
    sent = {"collection.description": "all books", "consistency_level": level}
    changed = with_changed_properties(PLAIN, sent, ())
    assert changed.schema.description == "all books"
    assert changed.consistency_level is ConsistencyLevel.STRONG
    assert changed.properties == PLAIN.properties


@pytest.mark.parametrize(
    ("properties", "deleted", "text"),
    [
        ({}, (), "no properties or delete keys provided"),
        ({"a": "1"}, ("b",), "cannot provide both DeleteKeys and ExtraParams"),
        ({"consistency_level": "Late"}, (), "invalid consistency level: Late"),
    ],
)
def test_what_is_no_change(properties: dict[str, str], deleted: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_property_change(properties, deleted)


@pytest.mark.parametrize(
    ("properties", "deleted", "change"),
    [
        ({"mmap.enabled": "true"}, (), "alter mmap properties"),
        ({"warmup.vectorIndex": "sync"}, (), "alter warmup properties"),
        ({}, ("mmap.enabled",), "delete mmap properties"),
        ({}, ("warmup.scalarField",), "delete warmup.scalarField properties"),
        ({"collection.ttl.seconds": "1"}, (), None),
        ({}, ("collection.ttl.seconds",), None),
    ],
)
def test_which_changes_need_a_release(
    properties: dict[str, str], deleted: tuple[str, ...], change: str | None
) -> None:
    assert collection_needs_release(properties, deleted) == change


def test_a_new_description_has_a_kilobyte_at_most() -> None:
    longest = "é" * 512
    described = with_changed_properties(PLAIN, {"collection.description": longest}, ())
    assert described.schema.description == longest
    with pytest.raises(InvalidParameter, match="a collection description must not exceed 1024 bytes"):
        with_changed_properties(PLAIN, {"collection.description": longest + "e"}, ())
    of_earlier_release = replace(PLAIN, schema=replace(PLAIN.schema, description="a" * 2000))
    sent = {"collection.description": "a" * 2000, "a": "3"}
    assert with_changed_properties(of_earlier_release, sent, ()).properties["a"] == "3"


def test_there_are_at_most_a_thousand_properties() -> None:
    most = {f"p{n}": "1" for n in range(PROPERTIES_MAX)}
    check_property_count(most, "collection books")
    assert changed_properties({"p0": "0"}, most, ()) == most
    with pytest.raises(InvalidParameter, match="collection books has 1025 properties, and at most 1024"):
        check_property_count({**most, "more": "1"}, "collection books")
    with pytest.raises(InvalidParameter, match="there would be 1025 properties, and at most 1024"):
        changed_properties(most, {"more": "1"}, ())


def test_what_has_more_properties_of_an_earlier_release_may_change_them_and_lose_some() -> None:
    of_earlier_release = {f"p{n}": "1" for n in range(20_000)}
    assert changed_properties(of_earlier_release, {"p0": "2"}, ())["p0"] == "2"
    assert len(changed_properties(of_earlier_release, {}, ("p0",))) == 19_999
    with pytest.raises(InvalidParameter, match="there would be 20001 properties"):
        changed_properties(of_earlier_release, {"more": "1"}, ())


class Compared(str):
    """A name that counts how often it is compared."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_many_properties_are_not_compared_with_each_of_many_that_are_dropped() -> None:
    known = {f"p{n}": "1" for n in range(300)}
    dropped = [Compared(f"p{n}") for n in range(299)] + [Compared(f"q{n}") for n in range(300)]
    Compared.times = 0
    assert changed_properties(known, {}, dropped) == {"p299": "1"}
    assert Compared.times < 10 * len(dropped)
