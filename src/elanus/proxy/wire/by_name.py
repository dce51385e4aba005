"""RPCs called by name, for fronts that do not receive protobuf messages.

`call_rpc` makes the request message, has it answered as if it had come by gRPC, and turns the status of the
response into an exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from google.protobuf import message_factory
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from elanus.core.errors import InvalidParameter
from elanus.proxy.access.caller import Caller
from elanus.proxy.calls import Calls
from elanus.proxy.wire.status import reported_failure, status_field
from elanus.proxy.wire.stubs import SERVICE, common_pb2
from elanus.proxy.wire.unsupported import unsupported_rpc

Parsed = TypeVar("Parsed", bound=Message)
_KEY_VALUE_PAIR: str = common_pb2.KeyValuePair.DESCRIPTOR.full_name


class RpcFailed(Exception):
    """The response of an RPC reports an error. ``code``: the one that clients since 2.3 read."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def call_rpc(calls: Calls, name: str, fields: Mapping[str, Any], caller: Caller) -> Any:
    """Return the response of the RPC to a request with these fields.

    Raises `RpcFailed`, `NotSupported` for an RPC that is no operation, and `InvalidParameter` for a value
    that its field cannot hold.
    """
    if name not in calls:
        raise unsupported_rpc(name)
    response = calls.answer(name, request_message(name, fields), caller)
    if failure := reported_failure(response, _status_field(name)):
        raise RpcFailed(*failure)
    return response


def request_message(name: str, fields: Mapping[str, Any]) -> Any:
    """Return the request of an RPC. A mapping fills a map of messages, or a field of key-value pairs: texts
    as they are, others as JSON. Raises `InvalidParameter` for a value that its field cannot hold."""
    message = _request_type(name)()
    for field, value in fields.items():
        _fill(message, field, value)
    return message


def takes(name: str, field: str) -> bool:
    """Whether the RPC's request has that field."""
    return field in SERVICE.methods_by_name[name].input_type.fields_by_name


def _fill(message: Any, field: str, value: Any) -> None:
    descriptor = message.DESCRIPTOR.fields_by_name[field]
    try:
        if isinstance(value, Mapping) and _is_pairs(descriptor):
            for key, item in value.items():
                getattr(message, field).add(key=key, value=parameter_text(item))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                getattr(message, field)[key].CopyFrom(item)
        elif isinstance(value, list | tuple):
            getattr(message, field).extend(value)
        elif isinstance(value, Message):
            getattr(message, field).CopyFrom(value)
        else:
            setattr(message, field, value)
    except (ValueError, TypeError) as error:
        raise InvalidParameter(f"{field} [{str(value)[:200]}] is invalid: {error}") from None


def _is_pairs(descriptor: Any) -> bool:
    return descriptor.message_type is not None and descriptor.message_type.full_name == _KEY_VALUE_PAIR


def parameter_text(value: object) -> str:
    """Return a parameter's value as clients send it in a key-value pair."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@cache
def _request_type(name: str) -> type[Message]:
    return message_factory.GetMessageClass(SERVICE.methods_by_name[name].input_type)


@cache
def _status_field(name: str) -> str:
    return status_field(SERVICE.methods_by_name[name].output_type) or ""


def from_json(sent: dict[str, Any], into: Parsed) -> Parsed:
    """Return the message with the members of a JSON object, named in camel case or as in the protos.

    Raises `InvalidParameter` for a name or value that the message does not have.
    """
    try:
        return ParseDict(sent, into)
    except ParseError as error:
        raise InvalidParameter(f"invalid parameter: {error}") from error


def as_json(message: Message) -> dict[str, Any]:
    """Return a message as JSON shows it: names in camel case, enums by name, bytes as text."""
    return {
        field.json_name: _json_member(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
    }


def _json_member(field: Any, value: Any) -> Any:
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return dict(value)
        return [_json_value(field, item) for item in value]
    return _json_value(field, value)


def _json_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_json(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value
