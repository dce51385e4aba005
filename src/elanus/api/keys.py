"""API keys, for the operators who create, list and drop them.

Served on the port that Milvus clients use, as `elanus.api.connector` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.core.api_keys import UNLIMITED, KeyScope


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """The part of a key that may be shown. ``created_ms``, ``expires_ms``: Unix time; 0: never."""

    key_id: str
    user: str
    created_ms: int
    expires_ms: int
    description: str
    scope: KeyScope = UNLIMITED


@dataclass(frozen=True, slots=True)
class NewKey:
    """``key``: the token for clients. It is returned this once: the server keeps only its SHA-256."""

    info: KeyInfo
    key: str


class KeysApi(Protocol):
    """The part that the proxy implements."""

    async def create_key(
        self, user: str, valid_days: int, description: str, scope: KeyScope = UNLIMITED
    ) -> NewKey:
        """Create a key that acts as the user, within ``scope``. ``valid_days`` 0: it does not expire.

        Raises `AccessConflict` for a user that does not exist, has too many keys or has not the roles,
        `InvalidParameter`, `DatabaseNotFound`, and `NotPermitted` for a key of a user who may do everything,
        unless the caller may too, and for a caller whose own key is limited.
        """
        ...

    @repeatable
    async def list_keys(self, user: str) -> tuple[KeyInfo, ...]:
        """Return the keys of a user, or, with "", of all users; the oldest first."""
        ...

    async def drop_key(self, user: str, key_id: str) -> None:
        """Returns when no proxy accepts the key. Raises `AccessConflict` if the user has no such key."""
        ...
