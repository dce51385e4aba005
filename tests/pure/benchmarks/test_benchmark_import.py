"""The measured import ends when it fails, instead of waiting for rows that never come."""

from __future__ import annotations

import pytest
from pymilvus.grpc_gen import common_pb2, milvus_pb2

from benchmarks.pipeline import visible_import
from benchmarks.pipeline.visible_import import failure_of, task_of, when

FAILED = milvus_pb2.GetImportStateResponse(
    state=common_pb2.ImportFailed,
    infos=[common_pb2.KeyValuePair(key="failed_reason", value="imported.parquet: no column vector")],
)


def test_a_failed_import_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_import, "_LOOK_S", 0.0)
    with pytest.raises(RuntimeError, match=r"the import failed: imported\.parquet: no column vector"):
        when(lambda: False, lambda: failure_of(FAILED), 0.0)


def test_what_has_come_is_not_asked_for() -> None:
    def never() -> str:
        raise AssertionError("asked")

    assert when(lambda: True, never, 0.0) > 0


def test_states_that_are_no_failure() -> None:
    for state in (common_pb2.ImportPending, common_pb2.ImportPersisted, common_pb2.ImportCompleted):
        assert failure_of(milvus_pb2.GetImportStateResponse(state=state)) == ""


def test_refusals_are_errors() -> None:
    refused = common_pb2.Status(code=100, reason="collection not found")
    with pytest.raises(RuntimeError, match="refused: collection not found"):
        task_of(milvus_pb2.ImportResponse(status=refused))
    with pytest.raises(RuntimeError, match="not known: collection not found"):
        failure_of(milvus_pb2.GetImportStateResponse(status=refused))
    assert task_of(milvus_pb2.ImportResponse(tasks=[7])) == 7
