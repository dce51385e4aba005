"""Rows in JSON: every type in both directions, exact integers, nulls, and values that do not fit."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from fake_verbs import FakeVerbs
from rest_client import RestClient, rest_front
from wire_calls import EVERY, Recorder

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.moments import IN_UTC
from elanus.core.partial_update import ArrayChange
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.types import KINDS, DataType
from elanus.proxy.rest.rows import _as_on_the_wire as read_as_on_the_wire
from elanus.proxy.rest.rows import batch_of
from elanus.proxy.rest.values import Integers, encoded, rows_of
from elanus.proxy.rest.values import _as_on_the_wire as written_as_on_the_wire
from elanus.proxy.wire.results import in_words

KEY = FieldSchema(100, "id", DataType.INT64, is_primary=True)
HALF = base64.b64encode(np.array([0.5, 2], np.float16).tobytes()).decode()
BRAIN = base64.b64encode(np.array([0x3F80, 0xC000], "<u2").tobytes()).decode()
EXACT = 2**53 - 1


def nested(levels: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def schema_of(data_type: DataType, **more: Any) -> CollectionSchema:
    return CollectionSchema("c", (KEY, FieldSchema(101, "f", data_type, **more)))


def round_trip(schema: CollectionSchema, *values: Any, integers: Integers = Integers.NUMBERS) -> list[Any]:
    """The values that an answer has for rows inserted with these, through the text of the JSON."""
    sent = orjson.loads(json.dumps([{"id": n, "f": value} for n, value in enumerate(values)]))
    batch = batch_of(schema, sent, with_auto_key=False)
    columns = {"f": in_words(schema.field("f"), batch.column("f"), IN_UTC)}
    rows = rows_of(columns, schema, batch.num_rows, None, integers)
    return [row["f"] for row in json.loads(encoded({"rows": rows}))["rows"]]


CASES: list[tuple[DataType, dict[str, Any], Any, Any]] = [
    (DataType.BOOL, {}, True, True),
    (DataType.BOOL, {}, "false", False),
    (DataType.INT8, {}, -128, -128),
    (DataType.INT16, {}, "32767", 32767),
    (DataType.INT32, {}, 2**31 - 1, 2**31 - 1),
    (DataType.INT64, {}, 2**63 - 1, 2**63 - 1),
    (DataType.INT64, {}, str(-(2**63)), -(2**63)),
    (DataType.FLOAT, {}, 0.1, 0.1),
    (DataType.DOUBLE, {}, 0.1, 0.1),
    (DataType.DOUBLE, {}, 3, 3.0),
    (DataType.VARCHAR, {"max_length": 9}, "žluť", "žluť"),
    (DataType.TEXT, {}, "žluť", "žluť"),
    (DataType.TIMESTAMPTZ, {}, "2025-01-01T01:00:00+01:00", "2025-01-01T00:00:00Z"),
    (DataType.GEOMETRY, {}, "POINT(1 2.5)", "POINT (1 2.5)"),
    (DataType.JSON, {}, {"a": [1, None]}, '{"a":[1,null]}'),
    (DataType.JSON, {}, "plain", '"plain"'),
    (DataType.JSON, {}, '{"a": 1}', '{"a":1}'),
    (
        DataType.ARRAY,
        {"element_type": DataType.INT64, "max_capacity": 4},
        [1, "2"],
        {"Data": {"LongData": {"data": [1, 2]}}},
    ),
    (
        DataType.ARRAY,
        {"element_type": DataType.VARCHAR, "max_capacity": 4, "max_length": 5},
        '["a"]',
        {"Data": {"StringData": {"data": ["a"]}}},
    ),
    (
        DataType.ARRAY,
        {"element_type": DataType.FLOAT, "max_capacity": 4},
        [0.1],
        {"Data": {"FloatData": {"data": [0.1]}}},
    ),
    (DataType.FLOAT_VECTOR, {"dim": 2}, [0.1, 1], [0.1, 1.0]),
    (DataType.BINARY_VECTOR, {"dim": 16}, [1, 255], "Af8="),
    (DataType.BINARY_VECTOR, {"dim": 16}, "Af8=", "Af8="),
    (DataType.FLOAT16_VECTOR, {"dim": 2}, [0.5, 2], HALF),
    (DataType.FLOAT16_VECTOR, {"dim": 2}, HALF, HALF),
    (DataType.BFLOAT16_VECTOR, {"dim": 2}, [1.0, -2.0], BRAIN),
    (DataType.INT8_VECTOR, {"dim": 2}, [-128, 127], [-128, 127]),
    (DataType.SPARSE_FLOAT_VECTOR, {}, {"7": 0.5, "2": 1}, {"2": 1.0, "7": 0.5}),
    (DataType.SPARSE_FLOAT_VECTOR, {}, {"indices": [7, 2], "values": [0.5, 1]}, {"2": 1.0, "7": 0.5}),
]


@pytest.mark.parametrize(("data_type", "more", "sent", "answered"), CASES)
def test_a_value_of_each_type_there_and_back(
    data_type: DataType, more: dict[str, Any], sent: Any, answered: Any
) -> None:
    assert round_trip(schema_of(data_type, **more), sent) == [answered]


def test_there_is_a_case_for_each_type() -> None:
    assert KINDS.keys() - {case[0] for case in CASES} == {DataType.ARRAY_OF_VECTOR}  # in test_rest_structs


@pytest.mark.parametrize(
    ("data_type", "more", "sent", "text"),
    [
        (DataType.BOOL, {}, 1, "send true or false"),
        (DataType.INT8, {}, 128, "out of range"),
        (DataType.INT64, {}, 2**63, "that it can hold"),
        (DataType.INT64, {}, 2**70, "whole number"),
        (DataType.INT64, {}, 1.0, "whole number"),
        (DataType.INT64, {}, "1.5", "whole number"),
        (DataType.INT64, {}, True, "whole number"),
        (DataType.FLOAT, {}, "1", "send a number"),
        (DataType.FLOAT, {}, 1e300, "FLOAT"),
        (DataType.VARCHAR, {"max_length": 3}, "four", "exceeds max length"),
        (DataType.VARCHAR, {"max_length": 3}, 4, "send a text"),
        (DataType.JSON, {}, nested(300), "too deeply"),
        (DataType.ARRAY, {"element_type": DataType.INT8, "max_capacity": 1}, [1, 2], "max capacity"),
        (DataType.ARRAY, {"element_type": DataType.INT8, "max_capacity": 4}, [1, None], "without nulls"),
        (DataType.ARRAY, {"element_type": DataType.INT8, "max_capacity": 4}, 5, "send a list"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, [1.0], "dim"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, [1.0, True], "[true]"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, [1.0, None], "[null]"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, [1.0, "2"], '["2"]'),
        (DataType.FLOAT_VECTOR, {"dim": 2}, [1.0, 1e300], "infinity"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, [[1.0], [2.0]], "list of numbers"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, {"0": 1}, "list of numbers"),
        (DataType.FLOAT_VECTOR, {"dim": 2}, "AAAA", "list of numbers"),
        (DataType.FLOAT16_VECTOR, {"dim": 2}, [1.0, 1e6], "infinity"),
        (DataType.FLOAT16_VECTOR, {"dim": 2}, "AAAA", "3 bytes"),
        (DataType.INT8_VECTOR, {"dim": 2}, [1, 128], "128"),
        (DataType.INT8_VECTOR, {"dim": 2}, [1, 0.5], "0.5"),
        (DataType.BINARY_VECTOR, {"dim": 16}, [1, 256], "256"),
        (DataType.BINARY_VECTOR, {"dim": 16}, [1], "dim"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, {"a": 1}, "indices"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, {"-1": 1}, "indices"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, {"1": "x"}, "numbers as values"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, {"1": -1}, "negative"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, {"indices": [1, 1], "values": [1, 2]}, "same indices"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, {"indices": [1], "values": []}, "as many values"),
        (DataType.SPARSE_FLOAT_VECTOR, {}, [1.0], "object"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    data_type: DataType, more: dict[str, Any], sent: Any, text: str
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        round_trip(schema_of(data_type, **more), sent)
    assert text in refused.value.message


@pytest.mark.parametrize("data_type", [DataType.INT32, DataType.VARCHAR, DataType.BOOL])
def test_a_type_without_a_json_form_of_its_own_has_that_of_the_wire(data_type: DataType) -> None:
    field = FieldSchema(101, "f", data_type, max_length=9)
    values: list[Any] = {DataType.INT32: [1, 2], DataType.VARCHAR: ["a"], DataType.BOOL: [True]}[data_type]
    column = read_as_on_the_wire(field, values)
    assert isinstance(column, pa.Array)
    assert list(written_as_on_the_wire(field, column.cast(field.arrow_type))) == values
    with pytest.raises(InvalidParameter, match="does not fit"):
        read_as_on_the_wire(field, [{"not": "one"}])


def test_a_type_that_has_no_form_in_json_is_refused() -> None:
    lists = FieldSchema(101, "f", DataType.ARRAY, element_type=DataType.INT8, max_capacity=2)
    with pytest.raises(NotSupported, match="in JSON"):
        read_as_on_the_wire(lists, [[1]])
    with pytest.raises(NotSupported, match="in JSON"):
        written_as_on_the_wire(lists, pa.array([[1]]))


@pytest.mark.parametrize(
    ("integers", "answered"),
    [
        (Integers.NUMBERS, [EXACT, EXACT + 1, -EXACT - 1, None]),
        (Integers.QUOTED, [str(EXACT), str(EXACT + 1), str(-EXACT - 1), None]),
        (Integers.QUOTED_IF_LARGE, [EXACT, str(EXACT + 1), str(-EXACT - 1), None]),
    ],
)
def test_integers_are_exact_and_quoted_as_the_client_asks(integers: Integers, answered: list[Any]) -> None:
    schema = schema_of(DataType.INT64, nullable=True)
    assert round_trip(schema, EXACT, EXACT + 1, -EXACT - 1, None, integers=integers) == answered


def test_nulls_and_missing_fields_are_defaults_or_null() -> None:
    assert round_trip(schema_of(DataType.INT64, nullable=True), None, 1) == [None, 1]
    assert round_trip(schema_of(DataType.INT64, default_value=7), None, 1) == [7, 1]
    rows = [{"id": 1}, {"id": 2, "f": 5}]
    batch = batch_of(schema_of(DataType.INT64, nullable=True), rows, with_auto_key=False)
    assert batch.column("f").to_pylist() == [None, 5]
    with pytest.raises(InvalidParameter, match="neither nullable nor has a default"):
        batch_of(schema_of(DataType.INT64), rows, with_auto_key=False)
    with pytest.raises(InvalidParameter, match="no corresponding fieldData"):
        batch_of(schema_of(DataType.INT64), [{"id": 1}], with_auto_key=False)


@pytest.fixture
def client(verbs: FakeVerbs) -> RestClient:
    client = RestClient(rest_front(verbs))
    client.data("collections/create", collectionName="c", dimension=2)
    return client


def test_dynamic_fields_are_members_of_the_row(client: RestClient) -> None:
    rows = [{"id": 1, "vector": [1, 0], "color": "red", "big": 2**60}, {"id": 2, "vector": [0, 1]}]
    client.data("entities/insert", collectionName="c", data=rows)
    answered = client.data("entities/query", collectionName="c", limit=10)
    assert answered == [{**rows[0], "vector": [1.0, 0.0], "big": str(2**60)}, {"id": 2, "vector": [0.0, 1.0]}]


def test_a_filter_next_to_keys_has_no_effect(client: RestClient) -> None:
    client.data("entities/insert", collectionName="c", data=[{"id": 1, "vector": [1, 0]}])
    body = {"collectionName": "c", "id": [1], "outputFields": ["id"]}
    answered = client.data("entities/get", filter="id > 5", limit=1, **body)
    assert answered == client.data("entities/get", **body)


def test_moments_and_geometries_are_texts(client: RestClient) -> None:
    fields = [
        {"fieldName": "id", "dataType": "Int64", "isPrimary": True},
        {"fieldName": "at", "dataType": "Timestamptz", "nullable": True},
        {"fieldName": "place", "dataType": "Geometry", "nullable": True},
        {"fieldName": "v", "dataType": "FloatVector", "elementTypeParams": {"dim": "2"}},
    ]
    client.data("collections/create", collectionName="events", schema={"fields": fields})
    client.data(
        "collections/alter_properties", collectionName="events", properties={"timezone": "Asia/Tokyo"}
    )
    index = {"fieldName": "v", "indexName": "v", "metricType": "L2", "params": {"index_type": "FLAT"}}
    client.data("indexes/create", collectionName="events", indexParams=[index])
    client.data("collections/load", collectionName="events")
    rows = [
        {"id": 1, "at": "2025-01-01T09:00:00", "place": "POINT(1 2)", "v": [0, 1]},
        {"id": 2, "at": None, "place": None, "v": [0, 2]},
    ]
    client.data("entities/insert", collectionName="events", data=rows)
    shown = [
        {"id": 1, "at": "2025-01-01T09:00:00+09:00", "place": "POINT (1 2)"},
        {"id": 2, "at": None, "place": None},
    ]
    names = {"collectionName": "events", "outputFields": ["id", "at", "place"]}
    assert client.data("entities/query", **names, filter="id > 0") == shown
    assert client.data("entities/get", **names, id=[1])[:1] == shown[:1]
    hits = client.data("entities/search", **names, data=[[0, 1]], annsField="v", limit=2)
    assert [{name: hit[name] for name in ("id", "at", "place")} for hit in hits] == shown


def test_a_write_answers_with_its_keys(client: RestClient, verbs: FakeVerbs) -> None:
    answer = client.post("entities/insert", collectionName="c", data={"id": 2**60, "vector": [1, 0]})
    assert answer == {"code": 0, "cost": 0, "data": {"insertCount": 1, "insertIds": [str(2**60)]}}
    upserted = client.data("entities/upsert", collectionName="c", data=[{"id": 5, "vector": [1, 0]}])
    assert upserted == {"upsertCount": 1, "upsertIds": [5]}
    gone = client.data("entities/delete", collectionName="c", filter="id in [5]")
    assert gone["deleteCount"] == 1
    assert verbs.deletes[-1].filter == "id in [5]"


def test_an_upsert_in_merge_mode_has_only_the_fields_that_change(
    client: RestClient, verbs: FakeVerbs
) -> None:
    client.data("entities/insert", collectionName="c", data={"id": 5, "vector": [1, 0]})
    rows = [{"id": 5, "colour": "red"}, {"id": 6}]
    merged = {"collectionName": "c", "partialUpdate": True}
    assert client.data("entities/upsert", **merged, data=rows)["upsertIds"] == [5, 6]
    sent = verbs.updates[-1].rows
    assert sent.schema.names == ["id", "$meta"]
    assert sent.column("$meta").to_pylist() == ['{"colour":"red"}', "{}"]
    client.data("entities/upsert", **merged, data=[{"id": 5, "vector": [2, 0]}])
    assert verbs.updates[-1].rows.schema.names == ["id", "vector"]
    written = len(verbs.updates)
    uneven = client.post("entities/upsert", **merged, data=[{"id": 5, "vector": [2, 0]}, {"id": 6}])
    assert (uneven["code"], "row 1 of the partial update lacks field vector" in uneven["message"]) == (
        1804,
        True,
    )
    assert "entities/upsert" in client.post("entities/insert", **merged, data=rows)["message"]
    assert len(verbs.updates) == written


def test_an_upsert_extends_arrays(client: RestClient, verbs: FakeVerbs) -> None:
    sent = {"collectionName": "c", "data": [{"id": 5, "vector": [1, 0]}]}
    extended = {**sent, "fieldOps": [{"fieldName": "tags", "op": " array_append "}]}
    client.data("entities/upsert", **extended)
    assert verbs.updates[-1].changes == {"tags": ArrayChange.APPEND}
    replaced = {**sent, "fieldOps": [{"fieldName": "vector", "op": "REPLACE"}]}
    client.data("entities/upsert", **replaced)
    assert len(verbs.updates) == 1, "a whole upsert"
    unknown = {**sent, "fieldOps": [{"fieldName": "tags", "op": "ARRAY_EXTEND"}]}
    answer = client.post("entities/upsert", **unknown)
    assert (answer["code"], "unsupported partial update op: ARRAY_EXTEND" in answer["message"]) == (
        1100,
        True,
    )
    assert "entities/upsert" in client.post("entities/insert", **extended)["message"]


def test_rows_that_do_not_fit_have_a_code_of_their_own(client: RestClient, verbs: FakeVerbs) -> None:
    for row in (
        {"id": 1, "vector": [1]},
        {"id": "x", "vector": [1, 0]},
        {"id": 1, "vector": [1, 0], "$meta": {}},
    ):
        answer = client.post("entities/insert", collectionName="c", data=[row])
        assert answer["code"] == 1804
        assert answer["message"].startswith("fail to deal the insert data, error: ")
    assert client.post("entities/insert", collectionName="c", data=[])["code"] == 1804
    assert client.post("entities/insert", collectionName="none", data=[{"id": 1}])["code"] == 100
    assert not verbs.writes


def test_hits_are_one_list_with_the_number_of_each_query(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("entities/insert", collectionName="c", data=[{"id": n, "vector": [n, 0]} for n in range(3)])
    answer = client.post(
        "entities/search",
        collectionName="c",
        data=[[0, 0], [2, 0]],
        limit=2,
        searchParams={"metricType": "L2", "params": {"ef": 50}, "ignoreGrowing": True},
        consistencyLevel="Strong",
        exprParams={"ids": [1, 2]},
    )
    assert answer["topks"] == [2, 2]
    assert [(hit["id"], hit["distance"]) for hit in answer["data"]] == [
        (0, 0.0),
        (1, 1.0),
        (2, 0.0),
        (1, 1.0),
    ]
    search = verbs.searches[-1]
    asked = search.template
    assert (asked.limit, asked.metric_type, asked.params) == (2, "L2", {"ef": 50})
    assert (asked.ignore_growing, search.timeout_s) == (True, 30.0)
    assert asked.filter_values == {"ids": [1, 2]}


def test_hits_are_ordered_by_fields(client: RestClient, verbs: FakeVerbs) -> None:
    body = {"collectionName": "c", "data": [[0, 0]]}
    client.data("entities/search", **body, orderByFields=["id:desc"])
    assert [(key.field, key.descending) for key in verbs.searches[-1].template.order] == [("id", True)]
    answer = client.post("entities/search", **body, orderByFields=["id:up"])
    assert (answer["code"], "expected 'asc' or 'desc'" in answer["message"]) == (1100, True)


def test_reads_have_the_references_defaults(client: RestClient, verbs: FakeVerbs) -> None:
    client.data("entities/query", {"request-timeout": "5"}, collectionName="c", filter="id > 0")
    query = verbs.queries[-1]
    assert (query.limit, query.output_fields, query.timeout_s) == (100, ("*",), 5.0)
    client.data("entities/query", collectionName="c", filter="id > 0", limit=0)
    assert verbs.queries[-1].limit is None
    client.data("entities/search", collectionName="c", data=[[0, 0]])
    assert verbs.searches[-1].template.limit == 100
    client.data("entities/get", collectionName="c", id=["1", 2])
    assert verbs.queries[-1].ids == [1, 2]
    assert client.data("entities/query", collectionName="c", outputFields=["count(*)"]) == [{"count(*)": 0}]
    assert verbs.queries[-1].limit is None


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("entities/get", {"id": "x"}, 1806),
        ("entities/get", {"id": 1.5}, 1806),
        ("entities/search", {"data": []}, 1100),
        ("entities/search", {"data": [[1]]}, 1100),
        ("entities/search", {"data": [[1, 0]], "annsField": "none"}, 1100),
        ("entities/search", {"data": [[1, 0]], "limit": -1}, 1100),
        ("entities/search", {"data": [[1, 0]], "consistencyLevel": "Weak"}, 1100),
        ("entities/search", {"data": [[1, 0]], "exprParams": {"a": {}}}, 1100),
        ("entities/search", {"data": [[1, 0]], "exprParams": {"a": nested(33)}}, 1100),
        ("entities/search", {"data": [[1, 0]], "exprParams": {"a": nested(900)}}, 1100),
        ("entities/delete", {"filter": "id in {a}", "exprParams": {"a": nested(900)}}, 1100),
        ("entities/insert", {"data": [{"id": 1, "vector": [1, 0], "other": nested(900)}]}, 1804),
        ("entities/search", {"data": [[1, 0]], "searchParams": {"params": 5}}, 1100),
        ("entities/search", {"data": [[1, 0]], "ids": [1]}, 1100),
        ("entities/query", {"limit": -1}, 1100),
        ("entities/query", {"limt": 1}, 1801),
        ("entities/delete", {}, 1802),
    ],
)
def test_a_read_that_makes_no_sense_is_refused(
    client: RestClient, path: str, body: dict[str, Any], code: int
) -> None:
    answer = client.post(path, collectionName="c", **body)
    assert answer["code"] == code, answer


def test_the_guard_is_asked_before_rows_are_read(verbs: FakeVerbs) -> None:
    RestClient(rest_front(verbs)).data("collections/create", collectionName="c", dimension=2)
    guard = Recorder(EVERY)
    client = RestClient(rest_front(verbs, guard))
    assert "refused" in client.post("entities/insert", collectionName="c", data=[{"id": "bad"}])["message"]
    (_, privilege, _, database, names) = guard.asked[0]
    assert (privilege, database, names) == ("PrivilegeInsert", "default", ("c",))


def test_answers_are_counted_by_operation(verbs: FakeVerbs) -> None:
    counted: list[tuple[str, int]] = []
    client = RestClient(rest_front(verbs, observe=lambda name, code, _: counted.append((name, code))))
    client.data("collections/create", collectionName="c", dimension=2)
    client.post("entities/insert", collectionName="c", data=[{"id": "bad", "vector": [0, 0]}])
    assert counted == [
        ("CreateCollection", 0),
        ("CreateIndex", 0),
        ("LoadCollection", 0),
        ("Rest.Insert", 1804),
    ]
