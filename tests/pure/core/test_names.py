"""Which names are legal, and the reference's words for those that are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elanus.core.errors import InvalidDatabaseName, InvalidFieldName, InvalidParameter
from elanus.core.names import (
    check_alias,
    check_collection_name,
    check_database_name,
    check_field_name,
    check_index_name,
    check_partition_name,
)

LONG = "a" * 256


@pytest.mark.parametrize("name", ["a", "_", "_1", "A9_z", "a" * 255])
@pytest.mark.parametrize(
    "check",
    [
        check_alias,
        check_collection_name,
        check_database_name,
        check_field_name,
        check_index_name,
        check_partition_name,
    ],
)
def test_a_legal_name_is_returned(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("name", ["12", "1-$", "_default", "part-1"])
def test_partitions_have_more_names(name: str) -> None:
    assert check_partition_name(name) == name


def test_an_index_may_have_no_name() -> None:
    assert [check_index_name(name) for name in ("", "  ")] == ["", ""]


def test_an_index_may_have_the_name_of_a_field_of_structs() -> None:
    assert check_index_name("clips[v]") == "clips[v]"
    with pytest.raises(InvalidParameter, match="Index name can only contain numbers, letters, and"):
        check_index_name("clips-v")


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (check_collection_name, "", "collection name should not be empty"),
        (check_collection_name, "  ", "collection name should not be empty"),
        (
            check_collection_name,
            "1a",
            "Invalid collection name: 1a. the first character of a collection name must be an underscore or "
            "letter",
        ),
        (
            check_collection_name,
            "a b",
            "Invalid collection name: a b. collection name can only contain numbers, letters and underscores",
        ),
        (
            check_collection_name,
            LONG,
            f"Invalid collection name: {LONG}. the length of a collection name must be less than 255 "
            "characters",
        ),
        (check_alias, " ", "collection alias should not be empty"),
        (
            check_alias,
            "\N{SNOWMAN}",
            "Invalid collection alias: \N{SNOWMAN}. the first character of a collection alias must be an "
            "underscore or letter",
        ),
        (
            check_alias,
            "a-b",
            "Invalid collection alias: a-b. collection alias can only contain numbers, letters and "
            "underscores",
        ),
        (check_partition_name, " ", "Invalid partition name: . Partition name should not be empty."),
        (
            check_partition_name,
            "(a)",
            "Invalid partition name: (a). The first character of a partition name must be an underscore or "
            "letter.",
        ),
        (
            check_partition_name,
            "1 a",
            "Invalid partition name: 1 a. Partition name can only contain numbers, letters and underscores.",
        ),
        (
            check_index_name,
            "1a",
            "Invalid index name: 1a. The first character of a index name must be an underscore or letter.",
        ),
    ],
)
def test_a_bad_name_is_refused_in_the_references_words(
    check: Callable[[str], str], name: str, text: str
) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        check(name)
    assert refusal.value.message == text
    assert refusal.value.code == 1100


@pytest.mark.parametrize("name", ["null", "Null", "NULL", "like", "IN", "text_match"])
def test_words_of_the_filter_language_name_no_field(name: str) -> None:
    with pytest.raises(InvalidFieldName, match=rf"Invalid field name: {name}. {name} is keyword in milvus."):
        check_field_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "database name couldn't be empty"),
        ("  ", "the first character of a database name must be an underscore or letter"),
        (LONG, "the length of a database name must be less than 255 characters"),
    ],
)
def test_a_bad_database_name_has_a_code_of_its_own(name: str, problem: str) -> None:
    with pytest.raises(InvalidDatabaseName) as refusal:
        check_database_name(name)
    assert refusal.value.message == f"{problem}: invalid database name[database={name}]"
    assert refusal.value.code == 802


def test_a_bad_field_name_has_a_code_of_its_own() -> None:
    with pytest.raises(InvalidFieldName) as refusal:
        check_field_name("1a")
    assert refusal.value.message == (
        "Invalid field name: 1a. The first character of a field name must be an underscore or letter.: "
        "field name invalid[field=1a]"
    )
    assert refusal.value.code == 1701
