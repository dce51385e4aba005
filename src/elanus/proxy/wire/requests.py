"""What the methods of all families read from a request: its database, its key-value pairs, its fields.

A family method declares with `rpc` which request fields it understands. A request that sets any other
field is refused before the method sees it, so that nothing a client asks for is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import InvalidParameter
from elanus.proxy.api import DEFAULT_DATABASE
from elanus.proxy.wire.stubs import Message
from elanus.proxy.wire.unsupported import INSTEAD_OF_FIELD, unsupported

Context = Any
"""A ``grpc.ServicerContext``."""

Method = TypeVar("Method", bound=Callable[..., Message])

_UNDERSTOOD = "understood_request_fields"
_ALWAYS_UNDERSTOOD = frozenset({"base", "db_name", "dbName"})
_DATABASE_HEADER = "dbname"


def rpc(*understood_fields: str, checks_itself: bool = False) -> Callable[[Method], Method]:
    """Marks a family's method as the RPC of its name, and names the request fields it heeds.

    ``base`` (a header that clients leave empty) and the database's name need not be listed. A method that
    ``checks_itself`` calls `refuse_unknown_fields` where it decodes the request.
    """

    def mark(method: Method) -> Method:
        setattr(method, _UNDERSTOOD, None if checks_itself else _ALWAYS_UNDERSTOOD.union(understood_fields))
        return method

    return mark


def is_rpc(method: object) -> bool:
    """Whether `rpc` has marked the method."""
    return hasattr(method, _UNDERSTOOD)


def understood_fields(method: Callable[..., Message]) -> frozenset[str] | None:
    """The fields that `rpc` declared; ``None`` when the method checks its request itself."""
    return getattr(method, _UNDERSTOOD, None)


def refuse_unknown_fields(message: Message, understood: frozenset[str], where: str) -> None:
    """Raises `NotSupported` when a message sets a field outside ``understood``.

    A field at its protobuf default counts as not set.
    """
    for field, _ in message.ListFields():
        if field.name not in understood:
            raise unsupported(f"the field {field.name} of {where}", INSTEAD_OF_FIELD.get(field.name))


def database_of(request: Message, context: Context) -> str:
    """The database a request means.

    Its own, else the connection's (the ``dbname`` header), else the default one.
    """
    named = getattr(request, "db_name", "") or getattr(request, "dbName", "")
    return named or database_of_connection(context) or DEFAULT_DATABASE


def database_of_connection(context: Context) -> str:
    """The database that the client chose when it connected, or ""."""
    for key, value in context.invocation_metadata():
        if key == _DATABASE_HEADER:
            return str(value)
    return ""


def to_dict(pairs: Iterable[Message]) -> dict[str, str]:
    """``KeyValuePair`` messages as a dict, in their order. Raises `InvalidParameter` on a repeated key."""
    found: dict[str, str] = {}
    for pair in pairs:
        if pair.key in found:
            raise InvalidParameter(f"parameter {pair.key} is given twice")
        found[pair.key] = pair.value
    return found


def add_pairs(pairs: Message, values: Mapping[str, str]) -> None:
    """Appends a mapping to a repeated field of ``KeyValuePair``."""
    for key, value in values.items():
        pairs.add(key=key, value=value)


def consistency_level(number: int) -> ConsistencyLevel:
    """Raises `InvalidParameter` for a number that is no level."""
    try:
        return ConsistencyLevel(number)
    except ValueError:
        known = ", ".join(f"{level.name.capitalize()} = {level.value}" for level in ConsistencyLevel)
        raise InvalidParameter(f"consistency level {number} does not exist; levels are {known}") from None
