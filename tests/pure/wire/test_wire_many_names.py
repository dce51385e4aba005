"""Requests that name more collections or segments than any server has: each name costs a look-up."""

from __future__ import annotations

import pytest
from fake_verbs import FakeVerbs
from wire_messages import Call, key_message, schema_bytes, vector_message

from elanus.core.errors import InvalidParameter
from elanus.core.limits import NAMED_COLLECTIONS_MAX, SENT_IDS_MAX


@pytest.fixture
def books(call: Call, verbs: FakeVerbs) -> int:
    schema = schema_bytes(key_message(), vector_message())
    assert call("CreateCollection", collection_name="books", schema=schema).code == 0
    return verbs.describe_collection("default", "books").collection_id


def test_descriptions_of_very_many_collections_are_refused(call: Call, books: int) -> None:
    """The same one, one without a name, or an id: each would be a description in the answer."""
    for field, value in (("collection_name", "books"), ("collection_name", ""), ("collectionID", books)):
        many = call("BatchDescribeCollection", **{field: [value] * (NAMED_COLLECTIONS_MAX + 1)})
        assert many.status.code == InvalidParameter.code
        assert f"{field} has 1025 entries, and at most 1024 are allowed" in many.status.reason
        assert not many.responses
        most = call("BatchDescribeCollection", **{field: [value] * NAMED_COLLECTIONS_MAX})
        assert len(most.responses) == NAMED_COLLECTIONS_MAX


def test_flushes_of_very_many_collections_are_refused(call: Call, books: int) -> None:
    status = call("Flush", collection_names=["books"] * (NAMED_COLLECTIONS_MAX + 1)).status
    assert (status.code, "send several requests" in status.reason) == (InvalidParameter.code, True)
    assert call("Flush", collection_names=["books"] * NAMED_COLLECTIONS_MAX).status.code == 0


def test_very_many_segments_are_not_looked_up(call: Call, books: int) -> None:
    state = call("GetFlushState", collection_name="books", segmentIDs=[1] * (SENT_IDS_MAX + 1))
    assert state.status.code == InvalidParameter.code
    assert "segmentIDs has 65537 ids, and at most 65536 are allowed" in state.status.reason
    for field in ("sealed_segmentIDs", "dst_nodeIDs"):
        moved = call("LoadBalance", collectionName="books", **{field: [1] * (SENT_IDS_MAX + 1)})
        assert (moved.code, field in moved.reason) == (InvalidParameter.code, True)
