"""The methods of an interface as messages: arguments as one msgpack array, results and errors as bytes.

Both are checked against the interface's type hints when they are decoded (msgspec). An error of
`elanus.core.errors` is sent as its name and message, and raised again with its original type.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

from elanus.core import errors

_OK, _ERROR = b"\x00", b"\x01"


@dataclass(frozen=True, slots=True)
class Method:
    """One method. ``parameters``: their names in order, without ``self``."""

    name: str
    arguments: msgspec.msgpack.Decoder[tuple[Any, ...]]
    result: msgspec.msgpack.Decoder[Any]
    signature: inspect.Signature

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.signature.parameters)

    def bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return all arguments in order, omitted ones with their defaults. Raises `TypeError`."""
        if not named and len(args) == len(self.signature.parameters):
            return args
        bound = self.signature.bind(*args, **named)
        bound.apply_defaults()
        return bound.args

    def result_of(self, reply: bytes, peer: str) -> Any:
        """Return the result that ``peer`` replied with. Raises the error that it replied with, and
        `Internal`."""
        if reply[:1] != _OK:
            kind, message = msgspec.msgpack.decode(reply[1:], type=tuple[str, str])
            raise errors.all_error_types().get(kind, errors.Internal)(message)
        try:
            return self.result.decode(reply[1:])
        except msgspec.DecodeError as error:
            raise errors.Internal(f"the answer of {peer} to {self.name} has another type: {error}") from error


def methods_of(api: type[Any]) -> dict[str, Method]:
    """Return the coroutine methods of an interface, by name."""
    methods = {}
    for name, function in inspect.getmembers(api, inspect.iscoroutinefunction):
        hints = get_type_hints(function)
        result = hints.pop("return", type(None))
        whole = inspect.signature(function)
        signature = whole.replace(parameters=[p for n, p in whole.parameters.items() if n != "self"])
        parameters = [hints[name] for name in signature.parameters]
        arguments = tuple[tuple(parameters)] if parameters else tuple[()]  # type: ignore[misc]
        decoder = msgspec.msgpack.Decoder(arguments)
        methods[name] = Method(name, decoder, msgspec.msgpack.Decoder(result), signature)
    return methods


def encoded_result(result: Any) -> bytes:
    """Return the reply of a method that returned."""
    return _OK + msgspec.msgpack.encode(result)


def encoded_error(error: errors.ElanusError) -> bytes:
    """Return the reply of a method that raised."""
    return _ERROR + msgspec.msgpack.encode((type(error).__name__, error.message))
