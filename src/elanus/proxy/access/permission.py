"""The privilege that an operation needs, and the mark by which a method declares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

NO_PRIVILEGE = ""
"""The privilege of operations that every caller may use, as the reference lets every user."""

ARRIVAL = "PrivilegeCreateCollection"
"""The privilege for making a collection in a database, by whatever operation."""
_PERMISSION = "declared_permission"


class ObjectType(StrEnum):
    """A privilege is held on one of these: the names of ``common.ObjectType`` in the Milvus protos."""

    COLLECTION = "Collection"
    GLOBAL = "Global"
    USER = "User"


@dataclass(frozen=True, slots=True)
class Permission:
    """The privilege that the caller of an operation must hold, and on what.

    ``privilege``: a name of ``common.ObjectPrivilege`` in the Milvus protos, or `NO_PRIVILEGE`.
    ``object_field``: the request field that names the objects; "" if no field does. ``user.name`` is the
    field ``name`` of the message in the field ``user``. ``arrival_field``: the request field that names a
    database in which the operation makes a collection; where it is not the request's own, the caller needs
    `ARRIVAL` in it as well. ``found_by``: the method, next to the operation's, that takes the value of the
    object field, a number, and returns the database and the names it stands for, or None for the request's
    own database as a whole; "" for a field of names. ``if_named``: a request that names no object needs no
    privilege.
    """

    privilege: str
    object_type: ObjectType
    object_field: str = ""
    arrival_field: str = ""
    found_by: str = ""
    if_named: bool = False


def requires(
    privilege: str,
    on: str = "",
    object_type: ObjectType | None = None,
    arrives_in: str = "",
    found_by: str = "",
    if_named: bool = False,
) -> Callable[[Method], Method]:
    """Declare the permission of the operation that the method implements.

    ``on``: the `Permission.object_field`. ``object_type``: by default a collection if a field is named, else
    global. ``arrives_in``: the `Permission.arrival_field`. ``found_by``, ``if_named``: as in `Permission`.
    """
    if object_type is None:
        object_type = ObjectType.COLLECTION if on else ObjectType.GLOBAL
    permission = Permission(privilege, object_type, on, arrives_in, found_by, if_named)

    def declare(method: Method) -> Method:
        setattr(method, _PERMISSION, permission)
        return method

    return declare


def permission_of(method: object) -> Permission | None:
    """The permission that `requires` declared; None if there is none."""
    return getattr(method, _PERMISSION, None)
