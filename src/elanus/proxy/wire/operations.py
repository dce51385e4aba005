"""The RPCs of the Milvus service as operations: the methods of the families, and refusals of all others.

A success answer contains all the messages that the reference sends, including empty ones: the runtimes of
some clients (JavaScript, C#, Rust) turn an absent message into null, and their programs read its members.

Nothing here depends on gRPC: any front that makes request messages can have them answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message

from elanus.core.errors import CollectionNotFound, ElanusError, InvalidParameter, NotSupported
from elanus.core.limits import NAMED_COLLECTIONS_MAX
from elanus.core.privileges import ANY
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import Permission, permission_of
from elanus.proxy.api.collections import CollectionView
from elanus.proxy.calls import Operation
from elanus.proxy.wire.permissions import about_fields, service_permissions
from elanus.proxy.wire.requests import (
    database_of,
    explains,
    is_rpc,
    refuse_unknown_fields,
    understood_fields,
)
from elanus.proxy.wire.status import always_sent_fields, status_field, status_of
from elanus.proxy.wire.stubs import SERVICE
from elanus.proxy.wire.unsupported import unsupported_rpc

T = TypeVar("T")
Handler = Callable[[Any, Caller], Message]
Names = Callable[[Any], tuple[str, ...]]
Find = Callable[[int], tuple[str, tuple[str, ...]] | None]
ById = Callable[[str, str, int], CollectionView]
"""`CollectionVerbs.describe_collection`, of which the names are left empty."""
_IDS = "collectionID"
"""The field of requests that name a collection by its id, or several; it counts where no name is given."""
_ANYWHERE = ANY, ()
"""The place of ids that are of no collection, or of collections in several databases."""


def milvus_operations(families: Iterable[object], by_id: ById | None = None) -> Iterator[Operation]:
    """Yield the RPCs of the service, all but those whose answers cannot report an error.

    A method of a family marked with `elanus.proxy.wire.requests.rpc` implements the RPC of its name. RPCs
    that no family has answer `NotSupported`. Raises `ValueError` when two families have the same RPC, one has
    an RPC that the service lacks or declares another permission than it needs, and for an RPC whose
    permission nobody has declared. ``by_id`` finds the collections that requests name by id; without it they
    need the privilege on everything.
    """
    needed = service_permissions(SERVICE)
    implemented = _implemented(families)
    if strangers := implemented.keys() - SERVICE.methods_by_name.keys():
        raise ValueError(f"the Milvus service has no RPC {', '.join(sorted(strangers))}")
    for method in SERVICE.methods:
        handler = implemented.get(method.name)
        status = status_field(method.output_type)
        if handler is not None:
            if (declared := permission_of(handler)) not in (None, needed[method.name]):
                raise ValueError(f"{method.name} declares {declared}, but needs {needed[method.name]}")
            permission = needed[method.name]
            find = _sibling_method(handler, permission.found_by)
            yield MilvusOperation(method, handler, status or "", permission, by_id, find)
        elif status is not None and not method.client_streaming:
            yield MilvusOperation(method, _refusal(method.name), status, needed[method.name])


def _implemented(families: Iterable[object]) -> dict[str, Handler]:
    found: dict[str, Handler] = {}
    for family in families:
        for name in dir(type(family)):
            if not is_rpc(getattr(type(family), name)):
                continue
            if name in found:
                raise ValueError(f"two families implement the RPC {name}")
            found[name] = getattr(family, name)
    return found


def _sibling_method(handler: Handler, name: str) -> Find | None:
    """Return another method of the family that implements an RPC; None for no name."""
    found: Find | None = getattr(getattr(handler, "__self__", None), name) if name else None
    return found


def _refusal(name: str) -> Handler:
    error = unsupported_rpc(name)

    def refuse(request: Any, caller: Caller) -> Message:
        raise NotSupported(error.message)

    return refuse


class MilvusOperation:
    """Implements `elanus.proxy.calls.Operation`.

    ``status``: the field of the response that carries the status; "" if the response is a status. ``by_id``:
    see `milvus_operations`. ``find``: the method that the permission names in ``found_by``.
    Raises `ValueError` for a permission on a field that the request lacks.
    """

    def __init__(
        self,
        method: MethodDescriptor,
        handler: Handler,
        status: str,
        permission: Permission,
        by_id: ById | None = None,
        find: Find | None = None,
    ) -> None:
        self.name = str(method.name)
        self.permission = permission
        self._handler = handler
        self._understood = understood_fields(handler)
        self._explain = explains(handler)
        self._found_field = permission.object_field
        self._find = find
        about = () if permission.found_by else about_fields(method.input_type, permission)
        self._names = _all_names(method.input_type, about)
        self._takes_ids = self._understood is not None and _IDS in self._understood
        self._by_id = by_id
        self._response_type: type[Message] = message_factory.GetMessageClass(method.output_type)
        self._always_sent = always_sent_fields(method.output_type)
        self._status = status

    def read(self, sent: Message) -> Message:
        if self._understood is not None:
            refuse_unknown_fields(sent, self._understood, self.name)
        return sent

    def objects(self, request: Message, caller: Caller) -> tuple[str, tuple[str, ...]]:
        if self._find is not None:
            found = self._find(getattr(request, self._found_field))
            return found or (database_of(request, caller), ())
        names = self._names(request)
        if self._takes_ids and not names and (ids := getattr(request, _IDS)):
            return self._place((ids,) if isinstance(ids, int) else _not_too_many(ids, _IDS))
        return database_of(request, caller), names

    def _place(self, ids: Iterable[int]) -> tuple[str, tuple[str, ...]]:
        """Return the database of the collections, and their names."""
        if self._by_id is None:
            return _ANYWHERE
        try:
            found = [self._by_id("", "", collection_id) for collection_id in ids]
        except CollectionNotFound:
            return _ANYWHERE
        database = found[0].database
        if any(view.database != database for view in found):
            return _ANYWHERE
        return database, tuple(view.name for view in found)

    def run(self, request: Message, caller: Caller) -> Message:
        response = self._handler(request, caller)
        for field in self._always_sent:
            getattr(response, field).SetInParent()
        return response

    def failed(self, error: ElanusError) -> Message:
        status = status_of(error)
        if not self._status:
            return status
        response = self._response_type(**{self._status: status})
        if self._explain is not None:
            self._explain(response, error)
        return response


def _all_names(request: Descriptor, paths: tuple[str, ...]) -> Names:
    if len(paths) == 1:
        return object_names(request, paths[0])
    readers = [object_names(request, path) for path in paths]
    return lambda message: tuple(name for read in readers for name in read(message))


def object_names(request: Descriptor, path: str) -> Names:
    """Return a function that reads the names in the field at ``path`` of a request; empty ones are left out.

    Raises `ValueError` if there is no such field, or it does not contain text. The function raises
    `InvalidParameter` for more names than a request may have.
    """
    if not path:
        return lambda _: ()
    first, _, rest = path.partition(".")
    field = request.fields_by_name.get(first)
    if field is None:
        raise ValueError(f"{request.name} has no field {first}")
    if rest and field.message_type is not None and not field.is_repeated:
        inner = object_names(field.message_type, rest)
        return lambda message: inner(getattr(message, first))
    if rest or field.type != field.TYPE_STRING:
        raise ValueError(f"the field {first} of {request.name} does not contain the name of an object")
    if field.is_repeated:
        return lambda message: tuple(name for name in _not_too_many(getattr(message, first), first) if name)
    return lambda message: (name,) if (name := getattr(message, first)) else ()


def _not_too_many(named: Sequence[T], field: str) -> Sequence[T]:
    """Return the names, or ids, of collections. Raises `InvalidParameter`: each of them is looked up."""
    if len(named) > NAMED_COLLECTIONS_MAX:
        raise InvalidParameter(
            f"{field} has {len(named)} entries, and at most {NAMED_COLLECTIONS_MAX} are allowed: "
            "send several requests"
        )
    return named
