"""`elanus keys`: create, list and drop API keys on a running server."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from elanus.api.keys import KeyInfo, KeysApi, NewKey
from elanus.cli.columns import Column, show, table
from elanus.cli.server_calls import Server, ask
from elanus.core.api_keys import NEVER, UNLIMITED, KeyScope
from elanus.core.errors import ElanusError

T = TypeVar("T")


class KeysFailed(Exception):
    """The server could not be reached, or refused. The text is for the user."""


def create(
    server: Server, user: str, valid_days: int, description: str, scope: KeyScope = UNLIMITED
) -> NewKey:
    """Raises `KeysFailed`."""
    return _asked(server, lambda keys: keys.create_key(user, valid_days, description, scope))


def listed(server: Server, user: str) -> tuple[KeyInfo, ...]:
    """``user`` "": the keys of all users. Raises `KeysFailed`."""
    return _asked(server, lambda keys: keys.list_keys(user))


def drop(server: Server, user: str, key_id: str) -> None:
    """Raises `KeysFailed`."""
    _asked(server, lambda keys: keys.drop_key(user, key_id))


def show_keys(keys: Sequence[KeyInfo], console: Console | None = None) -> None:
    show(console or Console(), keys_table(keys))


def keys_table(keys: Sequence[KeyInfo]) -> Text:
    names = ("key", "user", "created", "expires", "roles", "databases", "description")
    rows = [
        (
            key.key_id,
            key.user,
            _day(key.created_ms),
            _day(key.expires_ms),
            ", ".join(key.scope.roles) or "all",
            ", ".join(key.scope.databases) or "all",
            key.description,
        )
        for key in keys
    ]
    return table("API keys", tuple(map(Column, names)), rows)


def _day(time_ms: int) -> str:
    if time_ms == NEVER:
        return "never"
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).date().isoformat()


def _asked(server: Server, call: Callable[[KeysApi], Awaitable[T]]) -> T:
    try:
        return ask(server, KeysApi, call)
    except ElanusError as error:
        raise KeysFailed(error.message) from None
