"""Sessions of the console: who signed in, by the random id in a cookie.

A session keeps the user's name and the generation of the password, not the password. It ends after
`SESSION_S`, when its user signs out, changes the password or is dropped, and when the server stops.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from typing import NamedTuple

from elanus.core.errors import Unauthenticated
from elanus.proxy.access.sign_in import SignIn

SESSION_S = 12 * 3600
_SESSIONS_MAX = 1000
_OF_USER_MAX = 50
"""Of one user. The oldest session ends when there are more: of this user, so that nobody ends those of others
by signing in again and again; of all users, if all of them together have too many."""


class _Session(NamedTuple):
    user: str
    generation: int
    ends_s: float


class Sessions:
    """Safe to call from any thread. ``now_s``: a monotonic clock."""

    def __init__(self, sign_in: SignIn, now_s: Callable[[], float]) -> None:
        self._sign_in = sign_in
        self._now_s = now_s
        self._sessions: dict[bytes, _Session] = {}
        """By the digest of the id, in the order of their ends: a copy of the memory opens no session."""
        self._lock = threading.Lock()

    @property
    def are_needed(self) -> bool:
        """Whether the server has users."""
        return self._sign_in.is_required

    def begin(self, user: str, password: str, origin: str = "") -> str:
        """Return the id of a new session. ``origin``: the browser's address. Raises `Unauthenticated`."""
        name = self._sign_in.user_of(user, password, origin)
        generation = self._sign_in.generation_of(name)
        if generation is None:
            raise Unauthenticated(f"there is no user {name} any more")
        session_id = secrets.token_urlsafe(32)
        with self._lock:
            self._drop_old(name)
            self._sessions[_digest(session_id)] = _Session(name, generation, self._now_s() + SESSION_S)
        return session_id

    def user_of(self, session_id: str) -> str:
        """Return the user of a session; "" when the server has no users. Raises `Unauthenticated`."""
        if not self.are_needed:
            return ""
        session = self._sessions.get(_digest(session_id))
        if session is None or session.ends_s <= self._now_s():
            raise Unauthenticated("there is no such session, or it has ended: sign in")
        if self._sign_in.generation_of(session.user) != session.generation:
            self.end(session_id)
            raise Unauthenticated(f"the user {session.user} was changed or dropped: sign in again")
        return session.user

    def end(self, session_id: str) -> None:
        """End a session. Does nothing if there is none of that id."""
        with self._lock:
            self._sessions.pop(_digest(session_id), None)

    def _drop_old(self, user: str) -> None:
        """Make room for another session of the user. Sessions are in the order of their ends."""
        now_s = self._now_s()
        own = [digest for digest, session in self._sessions.items() if session.user == user]
        for digest in own[: max(0, len(own) + 1 - _OF_USER_MAX)]:
            del self._sessions[digest]
        while self._sessions:
            oldest = next(iter(self._sessions))
            if len(self._sessions) < _SESSIONS_MAX and self._sessions[oldest].ends_s > now_s:
                return
            del self._sessions[oldest]


def _digest(session_id: str) -> bytes:
    return hashlib.blake2b(session_id.encode(), digest_size=32).digest()
