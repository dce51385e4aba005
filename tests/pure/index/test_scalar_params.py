"""Parameters of scalar indexes: what each kind indexes, and the reference's texts for the rest."""

from __future__ import annotations

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.index_properties import altered, without_properties
from elanus.core.schema import DataType, FieldSchema
from elanus.index import check_field, json_path_of, mapped_params, resolve_field_index, resolve_index

T = DataType
NUMBERS = (T.INT8, T.INT16, T.INT32, T.INT64, T.FLOAT, T.DOUBLE)
WHOLE = NUMBERS[:4]
TYPES = (*NUMBERS, T.BOOL, T.VARCHAR, T.ARRAY, T.TIMESTAMPTZ, T.GEOMETRY)
SUFFIX = r": invalid parameter\[expected=valid index params\]\[actual=invalid index params\]"
JSON = {"json_path": 'doc["a"]', "json_cast_type": "varchar"}
GRAMS = {"min_gram": "2", "max_gram": "3"}


def field(data_type: DataType, **more: object) -> FieldSchema:
    return FieldSchema(FieldID(100), "doc", data_type, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("INVERTED", (*NUMBERS, T.BOOL, T.VARCHAR, T.ARRAY)),
        ("STL_SORT", (*NUMBERS, T.VARCHAR, T.TIMESTAMPTZ)),
        ("BITMAP", (*WHOLE, T.BOOL, T.VARCHAR, T.ARRAY)),
        ("Trie", (T.VARCHAR,)),
        ("TRIE", (T.VARCHAR,)),
        ("NGRAM", (T.VARCHAR,)),
        ("RTREE", (T.GEOMETRY,)),
        ("HYBRID", (*NUMBERS, T.BOOL, T.VARCHAR, T.ARRAY)),
        ("AUTOINDEX", TYPES),
        ("", TYPES),
    ],
)
def test_the_fields_that_a_kind_indexes(kind: str, types: tuple[DataType, ...]) -> None:
    for data_type in TYPES:
        if data_type in types:
            spec = resolve_index({"index_type": kind, **GRAMS}, data_type, 0)
            again = resolve_index(spec.flattened(), data_type, 0)
            assert (again.kind, again.params) == (spec.kind, spec.params)
            assert spec.memory_mapped
        else:
            with pytest.raises(InvalidParameter, match=SUFFIX):
                resolve_index({"index_type": kind, **GRAMS}, data_type, 0)


@pytest.mark.parametrize(
    ("kind", "data_type", "text"),
    [
        ("BITMAP", T.FLOAT, "bitmap index are only supported on bool, int, string and array field"),
        (
            "STL_SORT",
            T.BOOL,
            "STL_SORT are only supported on numeric, varchar or timestamptz field, got Bool",
        ),
        ("Trie", T.INT64, "TRIE are only supported on varchar field"),
        ("NGRAM", T.INT64, "ngram index can only be created on VARCHAR or JSON field"),
        ("INVERTED", T.TIMESTAMPTZ, "INVERTED are not supported on Timestamptz field"),
        (
            "STL_SORT",
            T.GEOMETRY,
            "STL_SORT are only supported on numeric, varchar or timestamptz field, got Geometry",
        ),
        ("RTREE", T.VARCHAR, "RTREE index can only be built on geometry field, got VarChar"),
        ("HYBRID", T.GEOMETRY, "hybrid index are only supported on bool, int, float, string and array field"),
        ("HNSW", T.INT64, "data type Int64 can't build with this index HNSW"),
    ],
)
def test_a_kind_that_does_not_suit_the_field(kind: str, data_type: DataType, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text + ".*" + SUFFIX):
        resolve_index({"index_type": kind}, data_type, 0)


def test_an_unknown_kind() -> None:
    text = (
        r"invalid parameter\[expected=valid index\]\[actual=invalid index type: 12 s\]: "
        "JSON fields take one of .*INVERTED.*, AUTOINDEX"
    )
    with pytest.raises(InvalidParameter, match=text):
        resolve_index({"index_type": "12 s"}, T.JSON, 0)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            {},
            r"json index must specify cast type: missing parameter\[missing_param=json_cast_type\]" + SUFFIX,
        ),
        (
            {"json_cast_type": "DOUBLE"},
            r"json index must specify json path: missing parameter\[missing_param=json_path\]" + SUFFIX,
        ),
        (
            {"json_cast_type": "ARRAY_INT64"},
            "json_cast_type ARRAY_INT64 is not supported.*: use one of BOOL,",
        ),
        (
            {"json_cast_type": "DOUBLE", "json_cast_function": "UPPER"},
            "json_cast_function UPPER is not supported",
        ),
        (
            {"json_cast_type": "VARCHAR", "json_cast_function": "STRING_TO_DOUBLE"},
            "json_cast_function STRING_TO_DOUBLE is not supported for json_cast_type VARCHAR",
        ),
        ({"index_type": "BITMAP", "json_cast_type": "DOUBLE"}, "DOUBLE is not supported for BITMAP index"),
        ({"index_type": "NGRAM"}, "JSON field with ngram index must specify json_cast_type"),
        ({"mmap.enabled": "x", "json_cast_type": "DOUBLE", "json_path": "doc"}, "invalid mmap type params"),
        ({"index_type": "NGRAM", "json_cast_type": "DOUBLE"}, "only supports VARCHAR cast type, got: DOUBLE"),
    ],
)
def test_parameters_of_a_json_path_that_are_refused(sent: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        resolve_index({"index_type": "INVERTED", **sent}, T.JSON, 0)


@pytest.mark.parametrize(
    ("sent", "cast"),
    [
        ("varchar", "VARCHAR"),
        (" Double ", "DOUBLE"),
        ("21", "VARCHAR"),
        ("5", "DOUBLE"),
        ("array_bool", "ARRAY_BOOL"),
        ("json", "JSON"),
    ],
)
def test_cast_types(sent: str, cast: str) -> None:
    spec = resolve_index({"json_path": "doc", "json_cast_type": sent}, T.JSON, 0)
    assert spec.params["json_cast_type"] == cast


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({}, "Ngram index must specify both min_gram and max_gram"),
        ({"min_gram": "2"}, "Ngram index must specify both min_gram and max_gram"),
        ({"min_gram": "x", "max_gram": "3"}, "min_gram for Ngram index must be an integer, got: x"),
        ({"min_gram": "4", "max_gram": "2"}, "invalid min_gram or max_gram value for Ngram index"),
        ({"min_gram": "0", "max_gram": "2"}, "min_gram: 0, max_gram: 2"),
    ],
)
def test_gram_lengths_that_are_refused(sent: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        resolve_index({"index_type": "NGRAM", **sent}, T.VARCHAR, 0)


def test_the_limit_of_a_bitmap() -> None:
    with pytest.raises(InvalidParameter, match="should be larger than 0 and smaller than 1000"):
        resolve_index({"index_type": "HYBRID", "bitmap_cardinality_limit": "0"}, T.INT64, 0)


def test_a_json_path_is_sorted_by_numbers_or_texts() -> None:
    documents, sent = field(T.JSON), {"index_type": "STL_SORT", "json_path": "doc['a']"}
    for cast in ("double", "varchar"):
        spec = resolve_field_index({**sent, "json_cast_type": cast}, documents)
        assert (spec.declared_type, spec.index_type) == ("STL_SORT", "INVERTED")
    with pytest.raises(InvalidParameter, match="json_cast_type BOOL is not supported for STL_SORT index"):
        resolve_field_index({**sent, "json_cast_type": "bool"}, documents)
    with pytest.raises(InvalidParameter, match="json index must specify cast type"):
        resolve_field_index(sent, documents)


def test_the_name_of_a_cast_function_may_be_in_small_letters() -> None:
    sent = {**JSON, "json_cast_type": "double", "json_cast_function": " string_to_double"}
    assert resolve_index(sent, T.JSON, 0).params["json_cast_function"] == "STRING_TO_DOUBLE"


def test_what_depends_on_more_than_the_type() -> None:
    bitmap = resolve_index({"index_type": "BITMAP"}, T.INT64, 0)
    check_field(bitmap, field(T.INT64))
    with pytest.raises(InvalidParameter, match="create bitmap index on primary key not supported"):
        check_field(bitmap, field(T.INT64, is_primary=True))
    of_arrays = resolve_index({"index_type": "BITMAP"}, T.ARRAY, 0)
    check_field(of_arrays, field(T.ARRAY, element_type=T.BOOL, max_capacity=4))
    with pytest.raises(InvalidParameter, match="only supported on bool, int, string for array"):
        check_field(of_arrays, field(T.ARRAY, element_type=T.DOUBLE, max_capacity=4))


@pytest.mark.parametrize("kind", ["INVERTED", "AUTOINDEX", "NGRAM", "BITMAP", "STL_SORT", "Trie"])
def test_a_text_field_takes_no_new_index(kind: str) -> None:
    spec = resolve_index({"index_type": kind, **(GRAMS if kind == "NGRAM" else {})}, T.TEXT, 0)
    with pytest.raises(
        InvalidParameter, match="TEXT field does not support user-created scalar index: field"
    ):
        check_field(spec, field(T.TEXT))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("doc", ()),
        ("doc['a'][\"b\"][0]", ("a", "b", 0)),
        ("doc['it\\'s']", ("it's",)),
        ("  doc [1]".replace(" [", "["), (1,)),
    ],
)
def test_json_paths(text: str, path: tuple[str | int, ...]) -> None:
    spec = resolve_index(JSON | {"json_path": text}, T.JSON, 0)
    assert json_path_of(spec, field(T.JSON)) == path
    assert json_path_of(spec, FieldSchema(FieldID(1), "$meta", T.JSON, is_dynamic=True)) == ("doc", *path)


def test_paths_that_lead_nowhere() -> None:
    for text, problem in (
        ("other['a']", "fieldID not match with field name"),
        ("doc[", "cannot parse identifier"),
        ("12-s", "cannot parse identifier"),
        ("%$#", "cannot parse identifier"),
        ("doc" + "['a']" * 201, "json_path has 201 keys, more than 200"),
    ):
        with pytest.raises(InvalidParameter, match=problem):
            check_field(resolve_index(JSON | {"json_path": text}, T.JSON, 0), field(T.JSON))


def test_properties_are_altered_wherever_they_stand() -> None:
    plain, nested = {"index_type": "FLAT"}, {"index_type": "FLAT", "params": '{"mmap.enabled": true}'}
    assert altered(plain, {"mmap.enabled": "True"}, ()) == plain | {"mmap.enabled": "True"}
    assert altered(nested, {"mmap.enabled": "false"}, ()) == {
        "index_type": "FLAT",
        "params": "{}",
        "mmap.enabled": "false",
    }
    assert altered(nested | {"mmap.enabled": "true"}, {}, ["mmap.enabled"]) == plain | {"params": "{}"}
    assert without_properties(nested) == plain | {"params": "{}"}


@pytest.mark.parametrize(
    ("built", "declared", "mapped"),
    [
        ({"index_type": "HNSW", "metric_type": "L2"}, {}, None),
        ({"index_type": "HNSW", "metric_type": "L2"}, {"mmap.enabled": "true"}, "true"),
        (
            {"index_type": "HNSW", "metric_type": "L2", "mmap.enabled": "true"},
            {"mmap.enabled": "false"},
            None,
        ),
        ({"index_type": "BITMAP", "mmap.enabled": "true"}, {}, "true"),
        ({"index_type": "BITMAP", "mmap.enabled": "true"}, {"mmap.enabled": "false"}, "false"),
    ],
)
def test_a_built_index_is_mapped_as_it_is_declared_now(
    built: dict[str, str], declared: dict[str, str], mapped: str | None
) -> None:
    assert mapped_params(built, declared).get("mmap.enabled") == mapped
