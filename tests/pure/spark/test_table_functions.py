"""The arguments of ``elanus_search`` that are constants are checked before the query runs."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.types import ArrayType, DataType, FloatType, IntegerType, StringType
from pyspark.sql.udtf import AnalyzeArgument
from snapshot_world import World, vectors

from elanus.core.errors import ElanusError
from elanus.spark import table_functions
from elanus.spark.opened import OpenCollection
from elanus.spark.segment_search import SegmentSet
from elanus.spark.table_functions import Search, _search_columns

FLOATS = ArrayType(FloatType())


class Opened:
    """An attached collection."""

    def __init__(self, world: World) -> None:
        self.snapshot = world.snapshot
        self.schema = world.schema
        self.store_url = world.store.url
        self.name = "docs"


@pytest.fixture
def opened(tmp_path: Path) -> dict[str, OpenCollection]:
    world = World(tmp_path)
    world.add([1, 2, 3], vectors(3))
    return {"docs": cast(OpenCollection, Opened(world))}


def argument(kind: DataType, value: Any, *, constant: bool = True) -> AnalyzeArgument:
    return AnalyzeArgument(dataType=kind, value=value, isTable=False, isConstantExpression=constant)


def analyzed(
    opened: dict[str, OpenCollection], vector: AnalyzeArgument, k: Any = 2, **more: Any
) -> list[str]:
    named = {name: argument(StringType(), value) for name, value in more.items()}
    name = argument(StringType(), "docs")
    return _search_columns(opened, name, vector, argument(IntegerType(), k), named).schema.names


def test_a_search_has_three_columns(opened: dict[str, OpenCollection]) -> None:
    columns = ["rank", "key", "score"]
    assert analyzed(opened, argument(FLOATS, [1.0] * 4)) == columns
    assert analyzed(opened, argument(FLOATS, None, constant=False), params='{"ef": 8}') == columns


GOOD = argument(FLOATS, [1.0] * 4)


@pytest.mark.parametrize(
    ("vector", "more", "message"),
    [
        (argument(FLOATS, None), {}, "vector is null"),
        (argument(FLOATS, [1.0]), {}, "vector has 1 values"),
        (argument(FLOATS, [1.0, float("nan"), 1.0, 1.0]), {}, "has nan at position 1"),
        (argument(ArrayType(StringType()), None, constant=False), {}, "has the type list"),
        (GOOD, {"k": 0}, "k is 0"),
        (GOOD, {"k": None}, "k is None"),
        (GOOD, {"params": "[1]"}, r"params is '\[1\]': give a JSON object"),
        (GOOD, {"filter": 7}, "filter is 7: give a text"),
        (GOOD, {"filter": "nothing > 1"}, "field nothing not exist"),
        (GOOD, {"field": "nothing"}, "field nothing not exist"),
        (
            argument(FLOATS, [1.0] * 4),
            {"fields": "v"},
            "there is no argument fields: there are field, filter",
        ),
    ],
)
def test_a_wrong_constant(
    opened: dict[str, OpenCollection], vector: AnalyzeArgument, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ElanusError, match=message):
        analyzed(opened, vector, **more)


def test_arguments_that_differ_from_row_to_row_do_not_fill_the_memory(
    opened: dict[str, OpenCollection], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[SegmentSet]] = []

    class Watched(SegmentSet):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(weakref.ref(self))

    def held() -> int:
        gc.collect()
        return sum(ref() is not None for ref in made)

    monkeypatch.setattr(table_functions, "SegmentSet", Watched)
    monkeypatch.setattr(Search, "opened", opened)
    search = Search()
    for row in range(20):
        for least in (0, row + 1):
            found = list(search.eval("docs", [1.0] * 4, 3, filter=f"id > {least}"))
            assert sorted(key for _, key, _ in found) == list(range(least + 1, 4))
    assert len(made) == 21, "what is asked again and again stays open"
    assert held() == 4
