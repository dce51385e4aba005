"""API keys: tokens by which programs act as a user without knowing its password.

A key is ``elk_<id>_<secret>``. The id names its record, and the secret is 256 random bits, so what is stored
is a plain SHA-256 of the whole key: there is nothing to guess, and sign-in needs no slow hash. A key has what
its user may do, and ends with its user, with its expiry or when it is dropped.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from elanus.core.errors import InvalidParameter
from elanus.core.limits import API_KEY_DAYS_MAX, API_KEY_DESCRIPTION_MAX_CHARS

PREFIX = "elk_"
_DIGEST = re.compile("[0-9a-f]{64}")
DAY_MS = 24 * 3600 * 1000
NEVER = 0
"""The ``expires_ms`` of a key that does not expire."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``digest``: SHA-256 of the key, in hex. ``created_ms``, ``expires_ms``: Unix time."""

    key_id: str
    user: str
    digest: str
    created_ms: int
    expires_ms: int = NEVER
    description: str = ""


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
    return key


def check_description(description: str) -> str:
    """Return the description unchanged. Raises `InvalidParameter`."""
    if len(description) > API_KEY_DESCRIPTION_MAX_CHARS:
        raise InvalidParameter(
            f"description has {len(description)} characters: give at most {API_KEY_DESCRIPTION_MAX_CHARS}"
        )
    return description
