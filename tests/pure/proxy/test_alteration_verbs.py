"""Alterations of a collection and of its fields as a client's thread asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes import CID, DEFAULT, collection, schema
from proxy_bench import Bench, asked, refused

from elanus.api.querycoord import LoadStatus
from elanus.core.errors import CollectionLoaded, InvalidParameter
from elanus.core.ids import CollectionID, FieldID
from elanus.core.schema import DataType, FieldSchema


def test_a_collection_is_flushed_before_it_is_truncated() -> None:
    order: list[str] = []

    def work(bench: Bench) -> None:
        async def truncate(collection_id: CollectionID) -> None:
            order.append(f"truncate {collection_id}")

        bench.root.truncate_collection = truncate  # type: ignore[attr-defined]
        bench.data.when_flushed = lambda: order.append("flush")
        bench.verbs.truncate_collection("default", "a")
        assert order == ["flush", f"truncate {CID}"]

    asked(work)


def test_the_memory_map_of_a_loaded_collection_stays_as_it_is() -> None:
    def work(bench: Bench) -> None:
        bench.query.statuses = [LoadStatus(CID, True, {DEFAULT: 100})]
        verbs = bench.verbs
        for change, what in (
            (lambda: verbs.alter_collection("default", "c", {"mmap.enabled": "true"}, ()), "alter mmap"),
            (lambda: verbs.alter_collection("default", "c", {}, ("mmap.enabled",)), "delete mmap"),
            (lambda: verbs.alter_field("default", "c", "v0", {"warmup": "sync"}, ()), "alter warmup"),
            (lambda: verbs.alter_field("default", "c", "v0", {}, ("mmap_enabled",)), "drop collection field"),
        ):
            with pytest.raises(CollectionLoaded, match=rf"can not {what}.* if collection loaded: .*=c\]"):
                change()

    asked(work)


def test_dynamic_fields_are_turned_on_as_a_field_is_added() -> None:
    def work(bench: Bench) -> None:
        added: list[FieldSchema] = []

        async def add_field(_database: str, _name: str, field: FieldSchema) -> None:
            added.append(field)

        bench.root.add_field = add_field  # type: ignore[attr-defined]
        bench.verbs.alter_collection("default", "c", {"dynamicfield.enabled": "true"}, ())
        assert [(f.name, f.is_dynamic) for f in added] == [("$meta", True)]

    asked(work)


def test_the_field_by_which_rows_expire_is_checked() -> None:
    def altered(bench: Bench, field: str) -> None:
        bench.verbs.alter_collection("default", "c", {"ttl_field": field}, ())

    refused(lambda b: altered(b, "nope"), InvalidParameter, "ttl field name nope not found in schema")
    refused(lambda b: altered(b, "pk"), InvalidParameter, "must be timestamptz")


@pytest.mark.parametrize(
    ("known", "changed", "text"),
    [
        ({"ttl_field": "pk"}, {"collection.ttl.seconds": "5"}, "ttl field is already exists, cannot be set"),
        ({"collection.ttl.seconds": "5"}, {"ttl_field": "pk"}, "TTL is already set, cannot be set ttl field"),
        ({}, {"ttl_field": "pk", "collection.ttl.seconds": "5"}, "cannot be set at the same time"),
        ({}, {"allow_insert_auto_id": "true"}, "must be false when autoID is false"),
        ({}, {}, "no properties or delete keys provided"),
    ],
)
def test_properties_that_exclude_what_a_collection_has(
    known: dict[str, str], changed: dict[str, str], text: str
) -> None:
    def alter(bench: Bench) -> None:
        bench.root.collections[CID] = replace(collection(), properties=known)
        bench.verbs.alter_collection("default", "c", changed, ())

    refused(alter, InvalidParameter, text)


def test_another_analyzer_of_a_field_is_checked() -> None:
    text = FieldSchema(FieldID(110), "t", DataType.VARCHAR, max_length=9)

    def alter(bench: Bench) -> None:
        plain = schema()
        bench.root.collections[CID] = collection(replace(plain, fields=(*plain.fields, text)))
        params = {"enable_analyzer": "true", "analyzer_params": '{"type": "klingon"}'}
        bench.verbs.alter_field("default", "c", "t", params, ())

    refused(alter, InvalidParameter, "unknown build-in analyzer type: klingon")


def test_adding_a_field_returns_when_the_collection_is_served_again() -> None:
    def work(bench: Bench) -> None:
        async def add_field(_database: str, _name: str, _field: FieldSchema) -> None:
            bench.query.statuses = [LoadStatus(CID, True, {DEFAULT: 40})]

        loads, seen = bench.query.loads, []

        async def progressing(collection_id: CollectionID) -> Any:
            seen.append(await loads(collection_id))
            bench.query.statuses = [LoadStatus(CID, True, {DEFAULT: 100})]
            return seen[-1]

        bench.root.add_field = add_field  # type: ignore[attr-defined]
        bench.query.loads = progressing  # type: ignore[method-assign]
        bench.verbs.add_field("default", "c", FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True))
        assert [found[0].percentages[DEFAULT] for found in seen] == [40, 100]

    asked(work)
