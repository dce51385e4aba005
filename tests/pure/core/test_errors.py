"""The error tree is what its docstring draws: the same classes, parents and codes, and no others."""

from __future__ import annotations

import re

import pytest

from elanus.core import errors
from elanus.core.errors import ElanusError, InvalidFilter, all_error_types

LINE = re.compile(
    r"^    (?P<branch>[│ ├└─]*?)(?P<name>[A-Z]\w+) +(?P<code>\d+) +(?P<legacy>\d+)", re.MULTILINE
)
RETRIABLE = {
    "NotReady",
    "Unavailable",
    "LeaseLost",
    "NoSession",
    "CoordinatorReplaced",
    "NotStarted",
    "ChannelLost",
    "ChannelRewound",
    "StoreAway",
    "DeadlineExceeded",
    "TaskQueueFull",
    "RateLimited",
    "MemoryFull",
    "VersionChanged",
    "CollectionNotFullyLoaded",
}


def drawn() -> dict[str, tuple[str, int, int]]:
    """From the docstring: parent, code and legacy code of every class but the root."""
    found: dict[str, tuple[str, int, int]] = {}
    branch: dict[int, str] = {}
    for line in LINE.finditer(errors.__doc__ or ""):
        depth = len(line["branch"]) // 4
        branch[depth] = line["name"]
        found[line["name"]] = (branch.get(depth - 1, "ElanusError"), int(line["code"]), int(line["legacy"]))
    return found


def built() -> dict[str, tuple[str, int, int]]:
    return {
        name: (kind.__bases__[0].__name__, kind.code, kind.legacy_code)
        for name, kind in all_error_types().items()
        if kind is not ElanusError and kind.__module__ == errors.__name__
    }


def test_the_tree_is_as_it_is_drawn() -> None:
    assert len(drawn()) >= 30
    assert built() == drawn()


def test_each_class_of_the_module_is_found_by_name() -> None:
    defined = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    found = all_error_types()
    assert {name: found.get(name) for name in defined} == defined


def test_a_retry_helps_exactly_where_a_state_passes_by_itself() -> None:
    ours = {name for name in built() if all_error_types()[name].retriable}
    assert ours == RETRIABLE


@pytest.mark.parametrize("kind", [k for k in all_error_types().values() if k.__module__ == errors.__name__])
def test_an_error_is_made_of_its_text_alone(kind: type[ElanusError]) -> None:
    error = kind("field pk: 7 is too large")
    assert str(error) == error.message == "field pk: 7 is too large"
    assert error.code != 0, "0 is success"
    assert error.legacy_code != 0


def test_a_filters_error_knows_its_place() -> None:
    assert InvalidFilter("unexpected ')'", 4).position == 4
    assert InvalidFilter("too deep").position is None
