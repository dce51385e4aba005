"""The one boundary where errors become a ``common.Status``, and messages that carry one.

Clients since 2.3 read ``code``, older ones the legacy ``error_code``: every failure fills in both.
An error that is not ours (an `ElanusError`) is a defect: it is logged with its traceback, and the client gets
the id of the trace instead of the text. So it does beside the text of an `Internal` error, whose story is in
the log of whichever role met it.
"""

from __future__ import annotations

import structlog

from elanus.core.errors import ElanusError, Internal, InvalidParameter
from elanus.proxy.wire.stubs import Message, common_pb2
from elanus.rpc.tracing import trace_id, with_trace

_log = structlog.get_logger(__name__)

_INVALID_PARAMETER = "invalid parameter"
_TEXT_MAX_CHARS = 4096
_STATUS_FULL_NAME: str = common_pb2.Status.DESCRIPTOR.full_name


def status_of(error: ElanusError) -> Message:
    """The status of an error that may reach a client, with its text, both codes and whether to retry."""
    text = _text(error)
    status = common_pb2.Status(
        error_code=error.legacy_code,
        code=error.code,
        reason=text,
        detail=text,
        retriable=error.retriable,
    )
    if isinstance(error, InvalidParameter):
        status.extra_info["is_input_error"] = "true"
    return status


def _text(error: ElanusError) -> str:
    """What the client is told, in bounds even where it sent a name of megabytes.

    The reference ends the text of a bad parameter with the name of the error; suites look for it.
    """
    text = error.message
    named = error.code == InvalidParameter.code and isinstance(error, InvalidParameter)
    if named and _INVALID_PARAMETER not in text:
        text = f"{text}: {_INVALID_PARAMETER}"
    if len(text) > _TEXT_MAX_CHARS:
        half = _TEXT_MAX_CHARS // 2
        text = f"{text[:half]}…{text[-half:]}"
    return with_trace(text) if isinstance(error, Internal) else text


def defect(rpc: str, error: Exception) -> Internal:
    """What the client is told of an unexpected exception, which is logged in full.

    Must be called while the exception is being handled, so that the log gets its traceback.
    """
    _log.error("rpc failed unexpectedly", rpc=rpc, trace_id=trace_id(), error=repr(error), exc_info=True)
    return Internal(f"{rpc} failed inside the server: its log has the details")


def status_field(response_descriptor: Message) -> str | None:
    """Where a response keeps its status.

    "" when the response is itself a status, ``None`` when it has none.
    """
    if response_descriptor.full_name == _STATUS_FULL_NAME:
        return ""
    for field in response_descriptor.fields:
        if field.message_type is not None and field.message_type.full_name == _STATUS_FULL_NAME:
            return str(field.name)
    return None


def success() -> Message:
    """The status of an RPC that did what was asked."""
    return common_pb2.Status()
