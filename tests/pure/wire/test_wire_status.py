"""Errors on the wire: both codes, no inner text of a defect."""

from __future__ import annotations

import pytest

from elanus.core.errors import (
    ElanusError,
    Internal,
    InvalidFilter,
    InvalidParameter,
    InvalidTopK,
    SchemaMismatch,
    all_error_types,
)
from elanus.proxy.wire.status import status_field, status_of
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2
from elanus.rpc.tracing import end_trace, set_trace


@pytest.mark.parametrize("kind", all_error_types().values(), ids=lambda kind: kind.__name__)
def test_every_error_fills_in_both_codes(kind: type[ElanusError]) -> None:
    status = status_of(kind("what went wrong"))
    assert (status.code, status.error_code) == (kind.code, kind.legacy_code)
    assert status.code != 0
    assert status.error_code != 0
    named = issubclass(kind, InvalidParameter) and kind.code == InvalidParameter.code
    assert status.reason == status.detail == "what went wrong" + (": invalid parameter" if named else "")
    assert status.retriable is kind.retriable


def test_the_legacy_codes_are_those_that_clients_know() -> None:
    assert status_of(SchemaMismatch("x")).error_code == common_pb2.SchemaMismatch
    assert status_of(InvalidTopK("x")).error_code == common_pb2.IllegalTOPK


def test_the_words_invalid_parameter_stand_once_in_a_text() -> None:
    reason = "metric type not match: invalid parameter[expected=L2][actual=IP]"
    assert status_of(InvalidParameter(reason)).reason == reason


def test_a_text_stays_in_bounds_and_keeps_both_ends() -> None:
    reason = status_of(InvalidParameter(f"Invalid name: {'x' * 10**6}. too long")).reason
    assert len(reason) < 5000
    assert reason.startswith("Invalid name: xxx")
    assert reason.endswith("xxx. too long: invalid parameter")


def test_input_errors_are_marked_as_the_callers() -> None:
    assert status_of(InvalidFilter("x", 3)).extra_info["is_input_error"] == "true"
    assert not status_of(SchemaMismatch("x")).extra_info


def test_only_an_error_that_does_not_explain_itself_names_its_trace() -> None:
    trace = set_trace("4bf92f3577b34da6a3ce929d0e0e4736")
    try:
        assert "4bf92f" not in status_of(InvalidFilter("x", 3)).reason
        assert "4bf92f" in status_of(Internal("x")).reason
    finally:
        end_trace(trace)
    assert status_of(Internal("x")).reason == "x"


@pytest.mark.parametrize(
    ("response", "field"),
    [
        (common_pb2.Status, ""),
        (milvus_pb2.SearchResults, "status"),
        (milvus_pb2.AlterCollectionSchemaResponse, "alter_status"),
        (milvus_pb2.DummyResponse, None),
    ],
)
def test_where_a_response_keeps_its_status(response: type, field: str | None) -> None:
    assert status_field(response.DESCRIPTOR) == field  # type: ignore[attr-defined]
