"""Output fields: what a client names, and which columns that means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import schema

from elanus.core.errors import FieldNotLoaded, InvalidParameter
from elanus.core.schema import CollectionSchema
from elanus.proxy.role.outputs import Outputs, resolve_outputs
from elanus.proxy.role.plans import Plans

PLAIN = schema()
DYNAMIC = schema(dynamic=True)


@pytest.mark.parametrize(
    ("requested", "with_key", "expected"),
    [
        ((), False, Outputs((), (), ())),
        ((), True, Outputs(("pk",), ("pk",), ())),
        (("price",), True, Outputs(("pk", "price"), ("pk", "price"), ())),
        (("price", "price", " pk "), False, Outputs(("price", "pk"), ("price", "pk"), ())),
        (("*",), False, Outputs(("pk", "price", "v0"), ("pk", "price", "v0"), ())),
        (("*", "price"), True, Outputs(("pk", "price", "v0"), ("pk", "price", "v0"), ())),
    ],
)
def test_declared_fields(requested: tuple[str, ...], with_key: bool, expected: Outputs) -> None:
    assert replace(resolve_outputs(PLAIN, requested, with_key=with_key), spared=(), keys=()) == expected


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (("color",), Outputs(("$meta",), ("color",), ("color",))),
        (('$meta["color"]', "$meta['size']"), Outputs(("$meta",), ("color", "size"), ("color", "size"))),
        (("price", "color"), Outputs(("price", "$meta"), ("price", "color"), ("color",))),
        (("price", '$meta["price"]'), Outputs(("price",), ("price",), ())),
        (('$meta["price"]', "price", "color"), Outputs(("price", "$meta"), ("price", "color"), ("color",))),
        (('$meta["price"]',), Outputs(("$meta",), ("price",), ("price",))),
        (("$meta",), Outputs(("$meta",), ("$meta",), None)),
        (("color", "$meta"), Outputs(("$meta",), ("$meta",), None)),
        (("*",), Outputs(("pk", "price", "v0", "$meta"), ("pk", "price", "v0", "$meta"), None)),
    ],
)
def test_dynamic_keys_and_whole_dynamic_rows(requested: tuple[str, ...], expected: Outputs) -> None:
    assert replace(resolve_outputs(DYNAMIC, requested, with_key=False), spared=(), keys=()) == expected


@pytest.mark.parametrize(
    ("requested", "needed", "spared"),
    [
        (("*",), (), ("price", "v0", "$meta")),
        (("*", "price"), (), ("v0", "$meta")),
        (("*",), ("price",), ("v0", "$meta")),
        (("*", "color"), (), ("price", "v0")),
        (("price",), (), ()),
    ],
)
def test_only_what_a_star_alone_asks_for_may_be_missing(
    requested: tuple[str, ...], needed: tuple[str, ...], spared: tuple[str, ...]
) -> None:
    assert resolve_outputs(DYNAMIC, requested, with_key=True).spared_unless(needed) == spared


def test_an_answer_shows_the_fields_that_are_loaded() -> None:
    outputs = resolve_outputs(DYNAMIC, ("*",), with_key=True)
    assert outputs.found_in({"pk", "price", "v0", "$meta"}) is outputs
    assert outputs.found_in({"pk", "v0"}) == Outputs(("pk", "v0"), ("pk", "v0"), ())


def test_a_dynamic_key_that_is_not_loaded_is_refused_by_its_name() -> None:
    outputs = resolve_outputs(DYNAMIC, ("color",), with_key=True)
    with pytest.raises(FieldNotLoaded, match=r"^field color cannot be returned"), outputs.naming_keys():
        raise FieldNotLoaded("field $meta cannot be returned since dynamic field not loaded")
    with pytest.raises(FieldNotLoaded, match=r"^field price is not loaded"), outputs.naming_keys():
        raise FieldNotLoaded("field price is not loaded")


def test_without_a_dynamic_field_an_unknown_name_is_an_error() -> None:
    with pytest.raises(InvalidParameter, match="field color not exist"):
        resolve_outputs(PLAIN, ("color",), with_key=False)


@pytest.mark.parametrize("name", ["count(*)", " SUM( pk ) ", "avg(nowhere)"])
@pytest.mark.parametrize("schema", [PLAIN, DYNAMIC])
def test_a_search_has_no_aggregates(schema: CollectionSchema, name: str) -> None:
    with pytest.raises(InvalidParameter, match="aggregates are not supported in search request"):
        resolve_outputs(schema, ("pk", name), with_key=False)


@pytest.mark.parametrize(
    "name",
    [
        "*%",
        "**",
        "@",
        "count(*)",
        "a b",
        '$meta["',
        "j['k']",
        "",
        "$meta['']",
        '$meta["a"]["b"]',
        "$meta['a'][0]",
    ],
)
def test_what_could_be_no_dynamic_key_is_an_error_with_a_dynamic_field_too(name: str) -> None:
    with pytest.raises(InvalidParameter, match="parse output field name failed"):
        resolve_outputs(DYNAMIC, ("pk", name), with_key=True)


def test_the_same_filter_text_is_the_same_plan() -> None:
    """Query nodes know a filter again by its identity, and use the masks they have."""
    plans = Plans(PLAIN)
    assert plans.filter("price > 3", {}) is plans.filter("price > 3", {})
    assert plans.filter("price > 3", {}) is not plans.filter("price > 4", {})
    assert plans.outputs(("*",), with_key=True) is plans.outputs(("*",), with_key=True)


def test_each_request_takes_a_sample_of_its_own() -> None:
    plans = Plans(PLAIN)
    assert plans.filter("random_sample(0.5)", {}) is not plans.filter("random_sample(0.5)", {})


def test_a_filter_with_values_is_not_kept() -> None:
    plans = Plans(PLAIN)
    one, two = (plans.filter("pk in {ids}", {"ids": ids}) for ids in ([1], [2]))
    assert one.primary_keys().to_pylist() == [1]
    assert two.primary_keys().to_pylist() == [2]
