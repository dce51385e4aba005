"""Sign-in: the user that a token names, if the password in it is right.

A token is ``user:password``, or an API key (`elanus.core.api_keys`), which has no colon. gRPC clients send it
in base64, HTTP clients as it is. Verifying a password takes tens of milliseconds, so a right token is
remembered: under a keyed hash, with the generation of the user's password. A change of the password makes
another generation, a dropped user has none, so what is remembered needs no clearing. A token that was wrong
is remembered too, for as long as nothing about users changes. Of calls with the same token that arrive at
once, one has it verified and the others wait for what it finds out. API keys are cheap to verify and may
expire at any moment: each call verifies them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from elanus.core.access import AccessPolicy, User
from elanus.core.api_keys import is_valid, key_id_of
from elanus.core.errors import ElanusError, Unauthenticated
from elanus.proxy.access.password_check import TRIES_PER_MINUTE, PasswordCheck
from elanus.proxy.access.passwords import is_outdated, verify_password
from elanus.rpc.serving.waiting import about_to_wait

_REMEMBERED_MAX = 10_000
_IN_BASE64 = b"base64"
_MISSING = "missing authorization in header"
_WRONG = "auth check failure, please check username and password are correct"
_WRONG_KEY = "auth check failure, please check api key is correct"
_NO_USER = User(
    "",
    "$argon2id$v=19$m=19456,t=2,p=1$ZWxhbnVzLW5vLXVzZXIhIQ$a7J5PW1WcsvM4fXfJmDyPwbYyjRB4nHnJ2oXnIY2hUE",
    0,
)
"""Compared with the password of a name that is no user's, so that it takes as long as another wrong password:
how long a refusal takes says nothing about who exists. Nobody knows a password of this hash."""

T = TypeVar("T")

Rehash = Callable[[User, str], None]
"""Called with a user and its password when the stored hash is of an outdated kind."""


class Identity(NamedTuple):
    """A caller who has signed in. ``key``: the id of the API key by which it did, "" for a password."""

    user: str = ""
    key: str = ""


NOBODY = Identity()
"""The caller of a server without users."""


class _Queue:
    """The calls that have the same token verified, one at a time. ``calls``: how many."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0


class SignIn:
    """Verifies tokens. Safe to call from any thread.

    ``policy`` returns the current policy, None when authorization is off. ``initial_password``: root's until
    it is changed for the first time; "" lets root not sign in before. ``verify`` compares a password with a
    stored hash. ``now_s``: seconds since 1970, by which API keys expire. ``tries_per_minute``: wrong
    passwords from one address; further ones are refused unseen. 0 for no limit.
    """

    def __init__(
        self,
        policy: Callable[[], AccessPolicy] | None,
        initial_password: str = "",
        verify: Callable[[str, str], bool] = verify_password,
        rehash: Rehash | None = None,
        now_s: Callable[[], float] = time.time,
        tries_per_minute: int = TRIES_PER_MINUTE,
    ) -> None:
        self._policy = policy
        self.passwords = PasswordCheck(initial_password, verify, tries_per_minute, now_s)
        """Other calls that send a password compare it by this: the tries of an address are the same."""
        self._rehash = rehash
        self._now_s = now_s
        self._key = os.urandom(32)
        self._right: dict[bytes, tuple[str, int]] = {}
        self._wrong: dict[bytes, int] = {}
        self._queues: dict[bytes, _Queue] = {}
        self._lock = threading.Lock()

    @property
    def is_required(self) -> bool:
        """Whether callers must sign in."""
        return self._policy is not None

    def user_of(self, name: str, password: str, origin: str = "") -> str:
        """Return the user of a name and a password, never of an API key. Raises as `identity_of` does."""
        return self.identity_of(f"{name}:{password}", origin).user

    def identity_of(self, token: str, origin: str = "") -> Identity:
        """Return whom the token names; `NOBODY` when authorization is off.

        ``origin``: the address that sends it; wrong passwords are counted by it.
        Raises `Unauthenticated` with the reference's text, and `ElanusError` when the users cannot be read.
        """
        if self._policy is None:
            return NOBODY
        if not token:
            raise Unauthenticated(_MISSING)
        policy = self._policy()
        if ":" not in token:
            return self._of_key(token, policy)
        digest = self._digest(token)
        return Identity(self._known(digest, policy) or self._verified(token, digest, policy, origin))

    def generation_of(self, user: str) -> int | None:
        """Return the generation of a user's password; None if there is no such user, or no users at all."""
        found = self._policy().users.get(user) if self._policy is not None else None
        return found.generation if found is not None else None

    def identity_of_header(self, value: str, origin: str = "") -> Identity:
        """The same for a token in base64, as gRPC clients send it in ``authorization``."""
        if self._policy is None:
            return NOBODY
        policy = self._policy()
        digest = self._digest(value, _IN_BASE64)
        if known := self._known(digest, policy):
            return Identity(known)
        try:
            token = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            raise Unauthenticated("invalid token format") from None
        found = self.identity_of(token, origin)
        with self._lock:
            right = self._right.get(self._digest(token))
        if right is not None:
            self._remember(self._right, digest, right)
        return found

    def _digest(self, text: str, form: bytes = b"") -> bytes:
        """``form``: keeps a token apart from the same text that is another one in base64."""
        return hashlib.blake2b(text.encode(), key=self._key, person=form, digest_size=16).digest()

    def _known(self, digest: bytes, policy: AccessPolicy) -> str:
        """The user of a token that was right before, and still is; else ""."""
        known = self._right.get(digest)
        if known is None:
            return ""
        user = policy.users.get(known[0])
        return known[0] if user is not None and user.generation == known[1] else ""

    def _of_key(self, token: str, policy: AccessPolicy) -> Identity:
        """An API key and its user. Nothing says whether the key never existed, was dropped or has expired."""
        key = policy.keys.get(key_id_of(token))
        if key is None or key.user not in policy.users or not is_valid(key, token, int(self._now_s() * 1000)):
            raise Unauthenticated(_WRONG_KEY)
        return Identity(key.user, key.key_id)

    def _verified(self, token: str, digest: bytes, policy: AccessPolicy, origin: str) -> str:
        """The user of a token that is not known to be right. Raises `Unauthenticated`."""
        name, _, password = token.partition(":")
        with self._one_at_a_time(digest):
            if known := self._known(digest, policy):
                return known
            user = self._looked_at(name, password, digest, policy, origin)
        if self._rehash is not None and is_outdated(user.password_hash):
            self._hash_again(user, password)
        return user.name

    def _looked_at(self, name: str, password: str, digest: bytes, policy: AccessPolicy, origin: str) -> User:
        refusal = Unauthenticated(_WRONG)
        if self._wrong.get(digest) == policy.version:
            raise refusal
        user = policy.users.get(name)
        is_right = self.passwords.is_right(user or _NO_USER, password, origin)
        if user is None or not is_right:
            self._remember(self._wrong, digest, policy.version)
            raise refusal
        self._remember(self._right, digest, (user.name, user.generation))
        return user

    @contextmanager
    def _one_at_a_time(self, digest: bytes) -> Iterator[None]:
        """Wait while another call has the same token verified."""
        with self._lock:
            queue = self._queues.setdefault(digest, _Queue())
            queue.calls += 1
        try:
            about_to_wait()
            with queue.lock:
                yield
        finally:
            with self._lock:
                queue.calls -= 1
                if not queue.calls:
                    del self._queues[digest]

    def _remember(self, table: dict[bytes, T], digest: bytes, value: T) -> None:
        with self._lock:
            if len(table) >= _REMEMBERED_MAX:
                table.pop(next(iter(table)))
            table[digest] = value

    def _hash_again(self, user: User, password: str) -> None:
        """The sign-in succeeded; a hash that could not be replaced now is replaced at another one."""
        assert self._rehash is not None
        try:
            self._rehash(user, password)
        except ElanusError:
            with self._lock:
                self._right.clear()
