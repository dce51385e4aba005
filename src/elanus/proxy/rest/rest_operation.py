"""Operations of the REST API's own, for endpoints that are no RPC: they take the body's struct."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elanus.core.errors import ElanusError
from elanus.core.names import DEFAULT_DATABASE
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import Permission, permission_of
from elanus.proxy.rest.bodies import Body, OfCollection
from elanus.proxy.rest.errors import RestError, reported

Objects = Callable[[Any, Caller], tuple[str, tuple[str, ...]]]
"""Returns the database that a body refers to, and the names of its objects."""


def collection_of(body: OfCollection, caller: Caller) -> tuple[str, tuple[str, ...]]:
    return database_of(body, caller), (body.collection_name,)


class RestOperation:
    """Implements `elanus.proxy.calls.Operation`. ``rpc``: a method whose permission it has. ``objects``: what
    a body is about."""

    def __init__(
        self,
        name: str,
        rpc: Callable[..., Any],
        run: Callable[[Any, Caller], Any],
        objects: Objects = collection_of,
    ) -> None:
        permission = permission_of(rpc)
        if permission is None or not permission.object_field:
            raise ValueError(f"{name} declares no permission on an object")
        self.name = name
        self.permission: Permission = permission
        self._run = run
        self.objects = objects

    def read(self, sent: Body) -> Body:
        return sent

    def run(self, request: Body, caller: Caller) -> Any:
        return self._run(request, caller)

    def failed(self, error: ElanusError) -> RestError:
        return reported(error)


def database_of(body: OfCollection, caller: Caller) -> str:
    """The database that a body names, else that of the connection, else the default one."""
    return body.db_name or caller.database or DEFAULT_DATABASE
