"""The endpoints of API keys, which the reference's API does not have.

They are operations with the permissions of the same calls of `elanus keys`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elanus.api.keys import KeyInfo, NewKey
from elanus.core.api_keys import KeyScope
from elanus.core.names import DEFAULT_DATABASE
from elanus.proxy.access.caller import Caller
from elanus.proxy.api.access import AccessVerbs
from elanus.proxy.calls import Operation
from elanus.proxy.rest.bodies import Body
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint
from elanus.proxy.rest.rest_operation import RestOperation
from elanus.proxy.wire.keys import Keys

CREATE_KEY, LIST_KEYS, DROP_KEY = "Rest.CreateKey", "Rest.ListKeys", "Rest.DropKey"


class NewApiKey(Body, kw_only=True):
    """``validDays`` 0: it does not expire. ``roleNames``: it has the rights of these roles of its user only;
    ``dbNames``: it has rights in these databases only."""

    user_name: str
    valid_days: int = 0
    description: str = ""
    role_names: list[str] = []
    db_names: list[str] = []


class KeysOf(Body, kw_only=True):
    """``userName``: whose keys; by default those of all users."""

    user_name: str = ""


class OldApiKey(Body, kw_only=True):
    user_name: str
    key_id: str


def key_operations(verbs: AccessVerbs) -> Iterator[Operation]:
    """Yield the operations of these endpoints."""
    keys = Keys(verbs)

    def create(body: NewApiKey, caller: Caller) -> NewKey:
        scope = KeyScope(tuple(body.role_names), tuple(body.db_names))
        return keys.create_key(caller, body.user_name, body.valid_days, body.description, scope)

    def listed(body: KeysOf, caller: Caller) -> tuple[KeyInfo, ...]:
        return keys.list_keys(caller, body.user_name)

    def drop(body: OldApiKey, caller: Caller) -> None:
        keys.drop_key(caller, body.user_name, body.key_id)

    yield RestOperation(CREATE_KEY, Keys.create_key, create, _user)
    yield RestOperation(LIST_KEYS, Keys.list_keys, listed, _user)
    yield RestOperation(DROP_KEY, Keys.drop_key, drop, _user)


def _user(body: NewApiKey | KeysOf | OldApiKey, caller: Caller) -> tuple[str, tuple[str, ...]]:
    name = body.user_name
    return caller.database or DEFAULT_DATABASE, (name,) if name else ()


def create_key(session: Session, body: NewApiKey) -> object:
    """Create an API key of a user, with all of its rights or a part; ``key`` is shown this once"""
    made: NewKey = session.operation(CREATE_KEY, body)
    return {**_shown(made.info), "key": made.key}


def list_keys(session: Session, body: KeysOf) -> object:
    """List the API keys of a user or of all users, without the keys themselves"""
    found: tuple[KeyInfo, ...] = session.operation(LIST_KEYS, body)
    return [_shown(info) for info in found]


def drop_key(session: Session, body: OldApiKey) -> object:
    """Drop an API key; then no proxy accepts it any more"""
    session.operation(DROP_KEY, body)
    return {}


def _shown(info: KeyInfo) -> dict[str, Any]:
    return {
        "keyId": info.key_id,
        "userName": info.user,
        "createdMs": info.created_ms,
        "expiresMs": info.expires_ms,
        "roleNames": list(info.scope.roles),
        "dbNames": list(info.scope.databases),
        "description": info.description,
    }


ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint("api_keys/create", NewApiKey, create_key, CREATE_KEY),
    endpoint("api_keys/list", KeysOf, list_keys, LIST_KEYS),
    endpoint("api_keys/drop", OldApiKey, drop_key, DROP_KEY),
)
