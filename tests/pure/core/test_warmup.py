"""Warm-up settings of collections and fields: kept as they are, and refused when they mean nothing."""

from __future__ import annotations

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.warmup import check_collection_warmups, check_field_warmup


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
