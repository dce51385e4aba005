"""API keys: tokens by which programs act as a user without knowing its password.

A key is ``elk_<id>_<secret>``. The id names its record, and the secret is 256 random bits, so what is stored
is a plain SHA-256 of the whole key: there is nothing to guess, and sign-in needs no slow hash. A key has what
its user may do, or the part of it that its scope leaves (`elanus.core.key_rights`). It ends with its user,
with its expiry or when it is dropped.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from elanus.core.errors import InvalidParameter
from elanus.core.limits import API_KEY_DAYS_MAX, API_KEY_DESCRIPTION_MAX_CHARS, API_KEY_SCOPE_MAX
from elanus.core.names import check_database_name

PREFIX = "elk_"
_DIGEST = re.compile("[0-9a-f]{64}")
DAY_MS = 24 * 3600 * 1000
NEVER = 0
"""The ``expires_ms`` of a key that does not expire."""


@dataclass(frozen=True, slots=True)
class KeyScope:
    """To what a key is limited. ``roles``: it has the rights of these roles of its user only. ``databases``:
    it has rights in these only, and none on the server as a whole. Empty ones do not limit."""

    roles: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        return bool(self.roles or self.databases)


UNLIMITED = KeyScope()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``digest``: SHA-256 of the key, in hex. ``created_ms``, ``expires_ms``: Unix time."""

    key_id: str
    user: str
    digest: str
    created_ms: int
    expires_ms: int = NEVER
    description: str = ""
    scope: KeyScope = UNLIMITED


def key_text(key_id: str, secret: str) -> str:
    """Return the key. ``key_id`` must have no underscore, which ends it."""
    return f"{PREFIX}{key_id}_{secret}"


def key_id_of(token: str) -> str:
    """Return the id that a token names, "" for a token that is no key."""
    if not token.startswith(PREFIX):
        return ""
    key_id, separator, secret = token[len(PREFIX) :].partition("_")
    return key_id if separator and secret else ""


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def is_valid(key: ApiKey, token: str, now_ms: int) -> bool:
    """Whether the token is this key, and the key has not expired."""
    if not hmac.compare_digest(key.digest, digest_of(token)):
        return False
    return key.expires_ms == NEVER or now_ms < key.expires_ms


def expiry_ms(now_ms: int, valid_days: int) -> int:
    """Return when a key created now expires; ``valid_days`` 0: never. Raises `InvalidParameter`."""
    if not 0 <= valid_days <= API_KEY_DAYS_MAX:
        raise InvalidParameter(
            f"valid_days is {valid_days}: give 1 to {API_KEY_DAYS_MAX}, or 0 for a key that does not expire"
        )
    return now_ms + valid_days * DAY_MS if valid_days else NEVER


def check_stored(key: ApiKey) -> ApiKey:
    """Return a key of a backup unchanged. Raises `InvalidParameter` for one that no server has made."""
    if "_" in key.key_id or not key.key_id or not _DIGEST.fullmatch(key.digest):
        raise InvalidParameter(
            f"the API key {key.key_id[:100]} of the user {key.user} is not as a server stores it: restore "
            "what a backup has"
        )
    check_description(key.description)
    check_scope(key.scope)
    return key


def check_description(description: str) -> str:
    """Return the description unchanged. Raises `InvalidParameter`."""
    if len(description) > API_KEY_DESCRIPTION_MAX_CHARS:
        raise InvalidParameter(
            f"description has {len(description)} characters: give at most {API_KEY_DESCRIPTION_MAX_CHARS}"
        )
    return description


def check_scope(scope: KeyScope) -> KeyScope:
    """Return the scope unchanged. Whether its roles exist is decided when the key is added.

    Raises `InvalidParameter`.
    """
    for name, parts in (("roles", scope.roles), ("databases", scope.databases)):
        if len(parts) > API_KEY_SCOPE_MAX:
            raise InvalidParameter(f"{name} has {len(parts)} names: give at most {API_KEY_SCOPE_MAX}")
    for database in scope.databases:
        check_database_name(database)
    if any(not role for role in scope.roles):
        raise InvalidParameter("roles has an empty name: name roles of the user, or none for all its rights")
    return scope
