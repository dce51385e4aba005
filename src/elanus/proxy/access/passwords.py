"""Hashes of passwords: argon2id for all that are stored here, bcrypt for those that a backup brought.

A hash takes tens of milliseconds and 19 MiB on purpose. At most `HASHES_AT_A_TIME` are computed at a time: a
flood of wrong passwords costs no more processors and memory than that.

The libraries are imported when the first password is hashed: a server without users does not need them.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elanus.core.access import User
from elanus.core.privileges import ROOT
from elanus.rpc.serving.waiting import about_to_wait

if TYPE_CHECKING:
    from argon2 import PasswordHasher

HASHES_AT_A_TIME = 2
_MEMORY_KIB = 19 * 1024
_PASSES = 2
_BCRYPT = ("$2a$", "$2b$", "$2y$")
_turns = threading.BoundedSemaphore(HASHES_AT_A_TIME)


def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=1)


@contextmanager
def hashing_turn() -> Iterator[None]:
    """Wait for one of the turns to compute a hash, and keep it meanwhile."""
    about_to_wait()
    with _turns:
        yield


def hash_password(password: str) -> str:
    """Return the hash to store. Blocks for tens of milliseconds, and while other hashes are computed."""
    with hashing_turn():
        return str(_hasher().hash(password))


def verify_password(password: str, stored: str) -> bool:
    """Whether the password is the one that was hashed. Call it in a `hashing_turn`: it takes none itself."""
    if stored.startswith(_BCRYPT):
        import bcrypt

        return bool(bcrypt.checkpw(password.encode()[:72], stored.encode()))
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return bool(_hasher().verify(stored, password))
    except (VerificationError, InvalidHashError):
        return False


def is_outdated(stored: str) -> bool:
    """Whether a password should be hashed again when it is known: its hash is bcrypt's."""
    return stored.startswith(_BCRYPT)


def is_hash(stored: str) -> bool:
    """Whether a text has the form of a hash that `verify_password` reads."""
    return stored.startswith((*_BCRYPT, "$argon2id$"))


def is_password_of(
    user: User,
    password: str,
    initial_root_password: str,
    verify: Callable[[str, str], bool] = verify_password,
) -> bool:
    """Whether the password is the user's. Call it in a `hashing_turn`.

    ``initial_root_password``: root's until it is changed for the first time; "" is nobody's.
    """
    if user.name == ROOT and not user.password_hash:
        expected = initial_root_password
        return bool(expected) and hmac.compare_digest(expected.encode(), password.encode())
    return bool(user.password_hash) and verify(password, user.password_hash)
