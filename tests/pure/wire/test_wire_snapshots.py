"""Snapshots as clients of the 3.0 generation ask for them."""

from __future__ import annotations

from typing import Any

import pytest
from fake_verbs import FakeVerbs
from wire_messages import Call, key_message, schema_bytes, vector_message

BOOKS = {"collection_name": "books"}
DAILY = {**BOOKS, "name": "daily"}


@pytest.fixture(autouse=True)
def books(call: Call) -> None:
    schema = schema_bytes(key_message(), vector_message())
    assert call("CreateCollection", **BOOKS, schema=schema).code == 0


def test_a_snapshot_is_made_described_listed_and_dropped(call: Call, verbs: FakeVerbs) -> None:
    status = call("CreateSnapshot", **DAILY, description="all", compaction_protection_seconds=60)
    assert status.code == 0
    (timeout_s,) = verbs.snapshot_timeouts_s
    assert timeout_s is not None, "the server waits no longer than the client"
    found = call("DescribeSnapshot", **DAILY)
    assert (found.name, found.description, found.collection_name) == ("daily", "all", "books")
    assert list(found.partition_names) == ["_default"]
    assert (found.create_ts, found.s3_location) == (5, "file:///s/1")
    assert list(call("ListSnapshots", **BOOKS).snapshots) == ["daily"]
    assert list(call("ListSnapshots").snapshots) == ["daily"]
    assert call("DropSnapshot", **DAILY).code == 0
    assert list(call("ListSnapshots").snapshots) == []
    assert "snapshot not found" in call("DescribeSnapshot", **DAILY).status.reason


def test_a_restore_is_a_job_that_is_complete(call: Call) -> None:
    call("CreateSnapshot", **DAILY)
    job_id = call("RestoreSnapshot", **DAILY, target_collection_name="copy").job_id
    info = call("GetRestoreSnapshotState", job_id=job_id).info
    assert (info.job_id, info.snapshot_name, info.collection_name) == (job_id, "daily", "copy")
    assert (info.db_name, info.state, info.progress, info.reason) == ("default", 3, 100, "")
    assert (info.start_time, info.time_cost) == (9, 2)
    assert list(call("ListRestoreSnapshotJobs", collection_name="copy").jobs) == [info]
    assert list(call("ListRestoreSnapshotJobs", collection_name="other").jobs) == []
    assert call("GetRestoreSnapshotState", job_id=77).status.code == 1100
    again = call("RestoreSnapshot", **DAILY, target_collection_name="books").status
    assert "already exists" in again.reason


def test_pins(call: Call, verbs: FakeVerbs) -> None:
    call("CreateSnapshot", **DAILY)
    pin_id = call("PinSnapshotData", **DAILY, ttl_seconds=60).pin_id
    assert verbs.snapshot_pins == [("daily", 60)]
    assert call("UnpinSnapshotData", pin_id=pin_id).code == 0
    assert verbs.snapshot_pins == [("", 0)]


@pytest.mark.parametrize(
    ("rpc", "fields", "text"),
    [
        ("CreateSnapshot", {**DAILY, "compaction_protection_seconds": -1}, "must be non-negative"),
        ("CreateSnapshot", {**DAILY, "compaction_protection_seconds": 604801}, "must not exceed 604800"),
        ("CreateSnapshot", {"name": "daily"}, "collection name should not be empty"),
        ("CreateSnapshot", {"name": "daily", "collection_name": "none"}, "collection not found"),
        ("RestoreSnapshot", DAILY, "collection name should not be empty"),
        (
            "RestoreSnapshot",
            {**DAILY, "rewrite_data": True},
            "rewrite_data of RestoreSnapshot is not",
        ),
        ("PinSnapshotData", {**DAILY, "ttl_seconds": -1}, "must be non-negative"),
        ("PinSnapshotData", {**DAILY, "ttl_seconds": 2592001}, "exceeds maximum of 2592000 (30 days)"),
        ("DropSnapshot", {"name": "daily"}, "collection name should not be empty"),
    ],
)
def test_bad_requests(call: Call, rpc: str, fields: dict[str, Any], text: str) -> None:
    answer = call(rpc, **fields)
    status = getattr(answer, "status", answer)
    assert status.code in (1100, 100)
    assert text in status.reason
