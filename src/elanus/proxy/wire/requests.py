"""Request parsing shared by the methods of all families: database, key-value pairs, fields.

A family method declares with `rpc` which request fields it understands. A request that sets any other
field is refused before it reaches the method, so that nothing a client requests is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message

from elanus.core.consistency import ConsistencyLevel
from elanus.core.errors import ElanusError, InvalidParameter
from elanus.core.limits import SENT_IDS_MAX
from elanus.core.names import DEFAULT_DATABASE
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType, requires
from elanus.proxy.wire.stubs import common_pb2
from elanus.proxy.wire.unsupported import INSTEAD_OF_FIELD, unsupported

Method = TypeVar("Method", bound=Callable[..., Message])

Explain = Callable[[Any, ElanusError], None]
"""Called with the response of an RPC that failed, and the error."""

_UNDERSTOOD = "understood_request_fields"
_EXPLAINS = "explains_errors"
_DATABASE_FIELDS = ("db_name", "dbName")
_ALWAYS_UNDERSTOOD = frozenset({"base", *_DATABASE_FIELDS})


def rpc(
    *understood_fields: str,
    privilege: str,
    on: str = "",
    object_type: ObjectType | None = None,
    arrives_in: str = "",
    found_by: str = "",
    if_named: bool = False,
    checks_itself: bool = False,
    explains: Explain | None = None,
) -> Callable[[Method], Method]:
    """Mark a family's method as the RPC of its name, and declare what it needs and understands.

    ``understood_fields``: the request fields that it uses; ``base`` (a header that clients leave empty) and
    the database's name need not be listed. A method that ``checks_itself`` calls `refuse_unknown_fields`
    where it decodes the request. ``privilege``, ``on``, ``object_type``, ``arrives_in``, ``found_by``,
    ``if_named``: see `elanus.proxy.access.permission.requires`; where the protos declare a privilege for the
    request message, they are the same. ``explains`` adds what the response has to say about an error apart
    from the status.
    """
    declare = requires(privilege, on, object_type, arrives_in, found_by, if_named)

    def mark(method: Method) -> Method:
        setattr(method, _EXPLAINS, explains)
        setattr(method, _UNDERSTOOD, None if checks_itself else _ALWAYS_UNDERSTOOD.union(understood_fields))
        return declare(method)

    return mark


def is_rpc(method: object) -> bool:
    """Whether `rpc` has marked the method."""
    return hasattr(method, _UNDERSTOOD)


def understood_fields(method: Callable[..., Message]) -> frozenset[str] | None:
    """The fields that `rpc` declared; ``None`` when the method checks its request itself."""
    fields: frozenset[str] | None = getattr(method, _UNDERSTOOD, None)
    return fields


def explains(method: Callable[..., Message]) -> Explain | None:
    """The function that `rpc` declared as ``explains``."""
    declared: Explain | None = getattr(method, _EXPLAINS, None)
    return declared


def refuse_unknown_fields(message: Message, understood: frozenset[str], where: str) -> None:
    """Raises `NotSupported` when a message sets a field outside ``understood``.

    A field at its protobuf default counts as not set.
    """
    for field, _ in message.ListFields():
        if field.name not in understood:
            raise unsupported(f"the field {field.name} of {where}", INSTEAD_OF_FIELD.get(field.name))


def database_of(request: Message, caller: Caller) -> str:
    """Return the database that a request refers to.

    It is the request's own, else the connection's, else the default one.
    """
    field = _database_field(request.DESCRIPTOR)
    named: str = getattr(request, field) if field else ""
    return named or caller.database or DEFAULT_DATABASE


@cache
def _database_field(request: Descriptor) -> str:
    """Return the field with the database's name, "" if there is none. Cached: it is needed in every call."""
    return next((name for name in _DATABASE_FIELDS if name in request.fields_by_name), "")


def to_dict(pairs: Iterable[common_pb2.KeyValuePair]) -> dict[str, str]:
    """Return ``KeyValuePair`` messages as a dict, in their order.

    Raises `InvalidParameter` on a key with two different values.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        if found.get(pair.key, pair.value) != pair.value:
            raise InvalidParameter(
                f"parameter {pair.key} is given twice: {found[pair.key]} and {pair.value}: send one"
            )
        found[pair.key] = pair.value
    return found


def add_pairs(
    pairs: RepeatedCompositeFieldContainer[common_pb2.KeyValuePair], values: Mapping[str, str]
) -> None:
    """Append a mapping to a repeated field of ``KeyValuePair``."""
    for key, value in values.items():
        pairs.add(key=key, value=value)


def few_ids(ids: Sequence[int], field: str) -> tuple[int, ...]:
    """Return the ids of segments or nodes. Raises `InvalidParameter` for more than a request may have."""
    if len(ids) > SENT_IDS_MAX:
        raise InvalidParameter(
            f"{field} has {len(ids)} ids, and at most {SENT_IDS_MAX} are allowed: send several requests"
        )
    return tuple(ids)


def enum_name(enum: Any, number: int) -> str:
    """Return the name of a number of an enum, such as ``schema_pb2.DataType``, for an error's text.

    Clients may send numbers that have no name.
    """
    if number in enum.values():
        return str(enum.Name(number))
    return f"unknown {enum.DESCRIPTOR.name} {number}"


def consistency_level(number: int) -> ConsistencyLevel:
    """Return the level with that number. Raises `InvalidParameter` if there is none."""
    try:
        return ConsistencyLevel(number)
    except ValueError:
        known = ", ".join(f"{level.name.capitalize()} = {level.value}" for level in ConsistencyLevel)
        raise InvalidParameter(f"consistency level {number} does not exist; levels are {known}") from None
