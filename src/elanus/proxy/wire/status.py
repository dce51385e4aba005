"""The one boundary where errors become a ``common.Status`` and messages that carry one.

Clients since 2.3 read ``code``, older ones the legacy ``error_code``: every failure fills in both.
With an `Internal` error the client gets the trace id in addition to the text; the details are in the log of
the role where the error occurred.
"""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from elanus.core.errors import ElanusError, Internal, InvalidParameter
from elanus.core.explanation import Explanation, text_of
from elanus.proxy.wire.stubs import common_pb2
from elanus.rpc.tracing import with_trace

_INVALID_PARAMETER = "invalid parameter"
_TEXT_MAX_CHARS = 4096
EXPLANATION_KEY = "elanus-explain"
EXPLANATION_TEXT_KEY = "elanus-explain-text"
"""The entries of a status's ``extra_info`` that have the explanation of a read."""
_STATUS_FULL_NAME: str = common_pb2.Status.DESCRIPTOR.full_name
_SENT_ON_OCCASION = frozenset({"milvus.proto.milvus.FlushAllResponse.cluster_info"})
"""Messages that the reference sends only in some deployments: this one describes a replicating cluster."""


def status_of(error: ElanusError) -> common_pb2.Status:
    """Return the status of an error for a client: its text, both codes and whether to retry."""
    text = _text(error)
    status = common_pb2.Status(
        error_code=common_pb2.ErrorCode.ValueType(error.legacy_code),
        code=error.code,
        reason=text,
        detail=text,
        retriable=error.retriable,
    )
    if isinstance(error, InvalidParameter):
        status.extra_info["is_input_error"] = "true"
    return status


def _text(error: ElanusError) -> str:
    """Return the text for the client, bounded even if the client sent a name of megabytes.

    The reference ends the text of a bad parameter with the name of the error; test suites look for it.
    """
    text = error.message
    named = error.code == InvalidParameter.code and isinstance(error, InvalidParameter)
    if named and _INVALID_PARAMETER not in text:
        text = f"{text}: {_INVALID_PARAMETER}"
    if len(text) > _TEXT_MAX_CHARS:
        half = _TEXT_MAX_CHARS // 2
        text = f"{text[:half]}…{text[-half:]}"
    return with_trace(text) if isinstance(error, Internal) else text


def add_explanation(response: Any, explanation: Explanation, as_json: bool, as_text: bool) -> None:
    """Add the explanation of a read to its response, as JSON, as the text for people, or both."""
    extra_info = response.status.extra_info
    if as_json:
        extra_info[EXPLANATION_KEY] = msgspec.json.encode(explanation).decode()
    if as_text:
        extra_info[EXPLANATION_TEXT_KEY] = text_of(explanation)


def status_field(response_descriptor: Descriptor) -> str | None:
    """Return the name of the field in which a response carries its status.

    "" if the response is itself a status, ``None`` if it has none.
    """
    if response_descriptor.full_name == _STATUS_FULL_NAME:
        return ""
    for field in response_descriptor.fields:
        if field.message_type is not None and field.message_type.full_name == _STATUS_FULL_NAME:
            return str(field.name)
    return None


def always_sent_fields(response_descriptor: Descriptor) -> tuple[str, ...]:
    """Return the fields of a success answer that are always set, even when empty: its messages.

    Excludes the alternatives of a oneof, of which an answer has at most one.
    """
    return tuple(
        str(field.name)
        for field in response_descriptor.fields
        if field.message_type is not None
        and not field.is_repeated
        and field.containing_oneof is None
        and field.full_name not in _SENT_ON_OCCASION
    )


def success() -> common_pb2.Status:
    """Return the status of a successful RPC."""
    return common_pb2.Status()


def reported_failure(response: Message, field: str) -> tuple[int, str] | None:
    """Return the code and the text of the error that a response reports; ``None`` if it succeeded.

    ``field``: see `status_field`.
    """
    status: Any = getattr(response, field) if field else response
    if not status.code and not status.error_code:
        return None
    return status.code or int(status.error_code), status.reason
