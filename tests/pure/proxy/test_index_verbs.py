"""Indexes as a client's thread asks for them: defined, described, altered and dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import CID, DEFAULT, OTHER, collection, index, schema
from proxy_bench import Bench, asked, refused

from elanus.api.indexcoord import BuildState, IndexStatus
from elanus.api.querycoord import LoadStatus
from elanus.core.errors import (
    CollectionLoaded,
    ElanusError,
    FieldNotFound,
    IndexNotFound,
    InvalidDimension,
    InvalidParameter,
    InvalidProperty,
)
from elanus.core.ids import FieldID, IndexID
from elanus.core.schema import DataType, FieldSchema

DYNAMIC = schema(dynamic=True)
DOCUMENTS = collection(
    replace(DYNAMIC, fields=(*DYNAMIC.fields, FieldSchema(FieldID(200), "doc", DataType.JSON)))
)
LOADED = LoadStatus(CID, True, {DEFAULT: 50, OTHER: 50})


def test_an_index_is_checked_before_it_is_announced() -> None:
    params = {"index_type": "HNSW", "metric_type": "L2", "dim": "3"}
    bench = refused(
        lambda b: b.verbs.create_index("default", "c", "v0", "", params), InvalidDimension, "dimension"
    )
    assert bench.index.calls.of("create_index") == []
    refused(lambda b: b.verbs.create_index("default", "c", "nope", "", {}), FieldNotFound, "nope")


def test_the_metric_bm25_is_for_functions_alone() -> None:
    params = {"index_type": "HNSW", "metric_type": "BM25"}
    refused(lambda b: b.verbs.create_index("default", "c", "v0", "", params), InvalidParameter, "BM25")


def test_an_index_without_a_name_is_named_by_indexcoord() -> None:
    params = {"index_type": "FLAT", "metric_type": "L2"}
    bench = asked(lambda b: b.verbs.create_index("default", "c", "v0", "", params))
    assert bench.index.calls.of("create_index") == [(CID, "v0", "", params)]


@pytest.mark.parametrize(
    ("params", "announced"),
    [
        ({}, {"index_type": "AUTOINDEX", "metric_type": "COSINE"}),
        ({"index_type": ""}, {"index_type": "AUTOINDEX", "metric_type": "COSINE"}),
        ({"index_type": "AUTOINDEX"}, {"index_type": "AUTOINDEX", "metric_type": "COSINE"}),
        ({"metric_type": "L2"}, {"index_type": "AUTOINDEX", "metric_type": "L2"}),
        ({"params": '{"metric_type": "IP"}'}, {"index_type": "AUTOINDEX", "params": '{"metric_type": "IP"}'}),
    ],
)
def test_an_automatic_index_has_its_type_and_metric(
    params: dict[str, str], announced: dict[str, str]
) -> None:
    bench = asked(lambda b: b.verbs.create_index("default", "c", "v0", "", params))
    assert bench.index.calls.of("create_index") == [(CID, "v0", "", announced)]


def test_the_index_of_a_scalar_field_stays_as_it_was_sent() -> None:
    bench = asked(lambda b: b.verbs.create_index("default", "c", "pk", "", {}))
    assert bench.index.calls.of("create_index") == [(CID, "pk", "", {})]


@pytest.mark.parametrize("index_type", ["HNSW", "FLAT", "INVERTED", "nonesuch"])
def test_a_named_type_of_a_vector_index_needs_a_metric(index_type: str) -> None:
    def create(bench: Bench) -> None:
        bench.verbs.create_index("default", "c", "v0", "", {"index_type": index_type})

    bench = refused(create, InvalidParameter, "metric type not set for vector index: invalid parameter")
    assert bench.index.calls.of("create_index") == []


def test_properties_of_an_index_are_altered() -> None:
    bench = asked(lambda b: b.verbs.alter_index("default", "c", "v0", {"mmap.enabled": "True"}, []))
    assert bench.index.calls.of("alter_index") == [(CID, "v0", {"mmap.enabled": "True"}, ())]
    bench = asked(lambda b: b.verbs.alter_index("default", "c", "v0", {}, ["mmap.enabled"]))
    assert bench.index.calls.of("alter_index") == [(CID, "v0", {}, ("mmap.enabled",))]


@pytest.mark.parametrize(
    ("name", "properties", "dropped", "error", "text"),
    [
        ("v0", {"nlist": "3"}, [], InvalidParameter, "nlist is not a configable index property"),
        ("v0", {}, ["M"], InvalidParameter, "M is not a configable index property"),
        ("v0", {"mmap.enabled": "x"}, [], InvalidProperty, "invalid mmap.enabled value: x, expected: true"),
        (
            "v0",
            {"mmap.enabled": "true"},
            ["mmap.enabled"],
            InvalidParameter,
            "cannot provide both DeleteKeys",
        ),
        ("v0", {"warmup": "x"}, [], InvalidParameter, "invalid warmup params: invalid warmup policy: x"),
        ("v0", {}, [], InvalidParameter, "no properties to set or drop"),
        ("", {"mmap.enabled": "true"}, [], InvalidParameter, "index name is empty"),
        ("1v", {"mmap.enabled": "true"}, [], InvalidParameter, "Invalid index name: 1v"),
    ],
)
def test_properties_that_are_refused(
    name: str, properties: dict[str, str], dropped: list[str], error: type[ElanusError], text: str
) -> None:
    bench = refused(lambda b: b.verbs.alter_index("default", "c", name, properties, dropped), error, text)
    assert bench.index.calls.of("alter_index") == []


def test_an_index_of_a_loaded_collection_is_not_altered() -> None:
    def alter(bench: Bench) -> None:
        bench.index.defined.append(index())
        bench.query.statuses = [LOADED]
        bench.verbs.alter_index("default", "c", "v0", {"mmap.enabled": "true"}, [])

    bench = refused(alter, CollectionLoaded, "can't alter index on loaded collection, please release")
    assert bench.index.calls.of("alter_index") == []


def test_an_index_of_a_loaded_collection_is_not_dropped() -> None:
    def drop(bench: Bench) -> None:
        bench.index.defined.append(index())
        bench.query.statuses = [LOADED]
        bench.verbs.drop_index("default", "c", "v0", "")

    assert refused(drop, InvalidParameter, "please release it first").index.calls.of("drop_index") == []


@pytest.mark.parametrize(
    ("field", "name", "dropped"),
    [("v0", "", True), ("", "v0", True), ("", "", True), ("v0", "other", False), ("price", "", False)],
)
def test_an_index_is_dropped_by_its_field_or_its_name(field: str, name: str, dropped: bool) -> None:
    def drop(bench: Bench) -> None:
        bench.index.defined.append(index(90))
        bench.verbs.drop_index("default", "c", field, name)

    assert asked(drop).index.calls.of("drop_index") == ([(CID, IndexID(90))] if dropped else [])


def test_an_index_on_a_key_of_the_dynamic_field_may_name_the_key() -> None:
    params = {"index_type": "INVERTED", "json_path": "doc['a'][0]", "json_cast_type": "double"}
    bench = asked(lambda b: b.verbs.create_index("default", "c", "doc", "", params), DOCUMENTS)
    assert bench.index.calls.of("create_index") == [(CID, "doc", "", params)]
    bench = asked(
        lambda b: b.verbs.create_index("default", "c", "year", "", params | {"json_path": "year"}), DOCUMENTS
    )
    assert bench.index.calls.of("create_index") == [(CID, "$meta", "", params | {"json_path": "year"})]


def test_an_index_without_a_path_is_on_what_the_request_names() -> None:
    params = {"index_type": "INVERTED", "json_cast_type": "double"}
    for named, field in (("doc", "doc"), ("year", "$meta")):
        bench = asked(lambda b, on=named: b.verbs.create_index("default", "c", on, "", params), DOCUMENTS)
        announced = [(CID, field, "", params | {"json_path": named})]
        assert bench.index.calls.of("create_index") == announced


def test_an_index_on_a_key_of_the_dynamic_field_is_described_with_the_key() -> None:
    dynamic = DOCUMENTS.schema.dynamic_field
    assert dynamic is not None
    params = {"index_type": "INVERTED", "json_path": "year['last']", "json_cast_type": "double"}
    defined = replace(index(90), field_id=dynamic.field_id, name="years", params=params)

    async def describe(_collection: object) -> tuple[IndexStatus, ...]:
        return (IndexStatus(defined, BuildState.FINISHED, "", 0, 0, 0),)

    def work(bench: Bench) -> None:
        bench.index.defined.append(defined)
        bench.index.describe = describe  # type: ignore[attr-defined]
        for named in ("", "year", "$meta"):
            (view,) = bench.verbs.describe_index("default", "c", "", named)
            assert (view.name, view.field_name) == ("years", "year")
        with pytest.raises(IndexNotFound, match=r"index not found\[indexName=nope\]"):
            bench.verbs.describe_index("default", "c", "nope", "")
        bench.verbs.drop_index("default", "c", "year", "")
        assert bench.index.calls.of("drop_index") == [(CID, IndexID(90))]

    asked(work, DOCUMENTS)


@pytest.mark.parametrize(
    ("field", "params", "text"),
    [
        ("price", {"index_type": "HYBRID"}, r"\[actual=invalid index type: HYBRID\]"),
        ("v0", {"index_type": "HYBRID", "metric_type": "L2"}, r"\[actual=invalid index type: HYBRID\]"),
        (
            "v0",
            {"index_type": "DISKANN", "metric_type": "L2", "mmap.enabled": "true"},
            "invalid mmap type params: index type DISKANN does not support mmap",
        ),
        ("v0", {"index_type": "FLAT", "metric_type": "L2", "warmup": "x"}, "invalid warmup params"),
    ],
)
def test_what_clients_cannot_choose(field: str, params: dict[str, str], text: str) -> None:
    bench = refused(lambda b: b.verbs.create_index("default", "c", field, "", params), InvalidParameter, text)
    assert bench.index.calls.of("create_index") == []


def test_an_index_of_a_field_that_is_being_added_is_not_dropped_with_the_others() -> None:
    def drop(bench: Bench) -> None:
        bench.index.defined += [index(90), replace(index(91), field_id=FieldID(999), name="soon")]
        bench.verbs.drop_index("default", "c", "", "")

    assert asked(drop).index.calls.of("drop_index") == [(CID, IndexID(90))]


def test_a_scalar_index_of_a_loaded_collection_is_dropped() -> None:
    def drop(bench: Bench) -> None:
        bench.index.defined += [index(90), replace(index(91), field_id=FieldID(101), name="price")]
        bench.query.statuses = [LOADED]
        bench.verbs.drop_index("default", "c", "", "price")

    assert asked(drop).index.calls.of("drop_index") == [(CID, IndexID(91))]


def test_the_file_of_a_diskann_index_is_not_mapped_later_either() -> None:
    def alter(bench: Bench) -> None:
        bench.index.defined.append(index(index_type="DISKANN"))
        bench.verbs.alter_index("default", "c", "v0", {"mmap.enabled": "false"}, [])
        bench.verbs.alter_index("default", "c", "v0", {"mmap.enabled": "true"}, [])

    bench = refused(alter, InvalidParameter, "index type DISKANN does not support mmap")
    assert len(bench.index.calls.of("alter_index")) == 1
