"""Query vectors and k of search jobs: what is taken, and what a refusal says."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from snapshot_world import DIM, schema, vectors

from elanus.core.errors import InvalidDimension, InvalidParameter, InvalidTopK
from elanus.core.limits import TOP_K_MAX
from elanus.spark.knn import with_distinct_ids
from elanus.spark.query_vectors import check_k, check_query_type, query_matrix

FIELD, BITS = schema().field("v"), schema().field("bits")
GOOD = [1.0] * DIM


def refused(column: pa.Array, field: Any = FIELD) -> str:
    """The error of a column whose rows are those of the queries q0, q1, …"""
    ids = pa.array([f"q{n}" for n in range(len(column))])
    with pytest.raises(InvalidParameter) as error:
        query_matrix(column, field, "embedding", ids)
    return str(error.value)


def test_query_vectors_come_as_lists_or_as_bytes() -> None:
    rows = vectors(3)
    lists = pa.array(rows.tolist(), pa.list_(pa.float64()))
    for column in (
        lists,
        lists.slice(1),
        lists.cast(pa.large_list(pa.float64())),
        pa.array([r.tobytes() for r in rows], pa.binary()),
        FIELD.vector.to_column(rows),
    ):
        assert np.array_equal(query_matrix(column, FIELD), rows[-len(column) :])
    whole = pa.array([[1, 2, 3, 4]], pa.list_(pa.int32()))
    exact = pa.array([[Decimal("1.0"), Decimal(2), Decimal(3), Decimal(4)]])
    for column in (whole, exact):
        assert np.array_equal(query_matrix(column, FIELD), np.array([[1, 2, 3, 4]], np.float32))
    packed = np.array([[1, 255], [7, 0]], dtype=np.uint8)
    for column in (pa.array([bytes(r) for r in packed]), pa.array(packed.tolist())):
        assert np.array_equal(query_matrix(column, BITS), packed)


def test_a_null_names_the_column_the_query_and_the_remedy() -> None:
    text = refused(pa.array([GOOD, None]))
    assert text == "embedding of query 'q1' is null: leave such rows out, by where('embedding is not null')"
    assert "q1' has a null at position 2" in refused(pa.array([GOOD, [1.0, 2.0, None, 4.0]]))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([GOOD, [1.0] * 5]), "'q1' has 5 values"),
        (pa.array([[1.0] * 3, [1.0] * 5]), "'q0' has 3 values"),
        (pa.array([[], GOOD]), "'q0' has 0 values"),
        (pa.array([b"12"]), "'q0' has 2 bytes"),
        (pa.array([b"1" * 8, b"1" * 24]), "'q0' has 8 bytes"),
        (pa.array([GOOD * 2]).cast(pa.list_(pa.float64(), 8)), "'q0' has 8 values"),
    ],
)
def test_a_vector_of_another_length(column: pa.Array, found: str) -> None:
    with pytest.raises(InvalidDimension):
        query_matrix(column, FIELD)
    text = refused(column)
    assert found in text
    assert "field v, of 4 dimensions" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_value_that_is_not_finite(value: float) -> None:
    text = refused(pa.array([GOOD, [1.0, value, 1.0, 1.0]]))
    assert text.startswith(f"embedding of query 'q1' has {value!r} at position 1, which is no finite number")
    assert "correct the value" in text


def test_a_value_that_is_not_finite_among_bytes() -> None:
    rows = np.array([GOOD, [1.0, 1.0, np.nan, 1.0]], np.float32)
    assert "'q1' has nan at position 2" in refused(pa.array([r.tobytes() for r in rows]))


@pytest.mark.parametrize("wrong", [-1, 256])
def test_a_value_that_is_no_byte_of_bits(wrong: int) -> None:
    assert f"'q1' has {wrong} at position 1" in refused(pa.array([[1, 2], [3, wrong]]), BITS)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (pa.string(), FIELD),
        (pa.null(), FIELD),
        (pa.int64(), FIELD),
        (pa.list_(pa.string()), FIELD),
        (pa.list_(pa.bool_()), FIELD),
        (pa.list_(pa.list_(pa.float32())), FIELD),
        (pa.list_(pa.float32()), BITS),
    ],
)
def test_a_type_that_holds_no_vectors(given: pa.DataType, field: Any) -> None:
    wanted = f"column embedding has the type {given}: query vectors of field {field.name} are"
    with pytest.raises(InvalidParameter, match=re.escape(wanted)):
        check_query_type(given, field, "embedding")
    with pytest.raises(InvalidParameter, match=re.escape(wanted)):
        query_matrix(pa.nulls(1, given), field, "embedding")


@pytest.mark.parametrize("k", [0, -1, 2.5, Decimal("2.5"), "3", True, None, TOP_K_MAX + 1])
def test_a_k_that_is_no_number_of_rows(k: object) -> None:
    with pytest.raises(InvalidTopK, match=f"^k is .*{k}.*: give a whole number from 1 to 16384"):
        check_k(k)


def test_a_k_that_is_one() -> None:
    for k in (1, TOP_K_MAX):
        check_k(k)


def test_each_query_has_an_id_of_its_own() -> None:
    def asked(*ids: object) -> pa.RecordBatch:
        return pa.record_batch({"query_id": pa.array(ids), "vector": pa.array([GOOD] * len(ids))})

    apart = [asked("a", "b"), asked(None, "c")]
    assert list(with_distinct_ids(apart)) == apart
    with pytest.raises(InvalidParameter, match="2 of 5 queries have the id of another one, 'a' for example"):
        list(with_distinct_ids([asked("a", "b"), asked("a", "c", "a")]))
    alike = asked([1], [1])
    assert list(with_distinct_ids([alike])) == [alike], "Arrow does not compare lists"
