"""Warm-up settings: refused when they mean nothing, and which indexes are read at load because of them."""

from __future__ import annotations

import pytest

from elanus.core.catalog import Index
from elanus.core.errors import InvalidParameter
from elanus.core.ids import CollectionID, FieldID, IndexID
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.core.types import DataType
from elanus.core.warmup import check_collection_warmups, check_field_warmup, warmed_indexes
from elanus.index import ignored_params, resolve_index


@pytest.mark.parametrize("policy", ["sync", "disable"])
def test_the_policies(policy: str) -> None:
    check_collection_warmups({"warmup.vectorIndex": policy, "other": "x"})
    check_field_warmup("v", {"warmup": policy, "dim": "4"})


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"warmup": "sync"}, "warmup key 'warmup' is only allowed at field level"),
        ({"warmup.scalarField": "now"}, "invalid warmup value for key warmup.scalarField: .*now"),
        ({"warmup.vectorField": ""}, "invalid warmup value for key warmup.vectorField"),
    ],
)
def test_what_a_collection_cannot_have(properties: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        check_collection_warmups(properties)


def test_what_a_field_cannot_have() -> None:
    with pytest.raises(InvalidParameter, match=r"invalid warmup policy for field v: .*async"):
        check_field_warmup("v", {"warmup": "async"})


def test_an_indexs_own_setting_comes_before_the_collections() -> None:
    vector, scalar = FieldID(100), FieldID(101)

    def index(number: int, field: FieldID, **params: str) -> Index:
        return Index(IndexID(number), CollectionID(1), field, str(number), params, NO_TIMESTAMP)

    indexes = [
        index(1, vector),
        index(2, scalar),
        index(3, scalar, warmup="sync"),
        index(4, scalar, params='{"warmup": "disable"}'),
        index(5, vector, params='{"warmup": "sync", "M": 8}'),
    ]
    assert warmed_indexes(indexes, {vector}, {}) == {3, 5}
    assert warmed_indexes(indexes, {vector}, {"warmup.vectorIndex": "sync"}) == {1, 3, 5}
    assert warmed_indexes(indexes, {vector}, {"warmup.scalarIndex": "sync"}) == {2, 3, 5}
    assert warmed_indexes(indexes, {vector}, {"warmup.scalarField": "sync"}) == {3, 5}


@pytest.mark.parametrize("index_type", ["AUTOINDEX", "HNSW"])
def test_a_warm_up_setting_of_an_index_is_no_unknown_parameter(index_type: str) -> None:
    params = {"index_type": index_type, "metric_type": "L2", "warmup": "sync"}
    spec = resolve_index(params, DataType.FLOAT_VECTOR, 4)
    assert ignored_params(params, spec) == ()
