"""How a password that a client sent is compared: two at a time, and so many wrong ones of an address."""

from __future__ import annotations

import time
from collections.abc import Callable

from elanus.core.access import User
from elanus.proxy.access.password_tries import PasswordTries
from elanus.proxy.access.passwords import hashing_turn, is_password_of, verify_password

TRIES_PER_MINUTE = 30


class PasswordCheck:
    """Safe to call from any thread.

    ``initial_password``: root's until it is changed for the first time; "" is nobody's. ``verify`` compares a
    password with a stored hash. ``tries_per_minute``: wrong passwords from one address; further ones are
    refused unseen. 0 for no limit. ``now_s``: a clock in seconds.
    """

    def __init__(
        self,
        initial_password: str = "",
        verify: Callable[[str, str], bool] = verify_password,
        tries_per_minute: int = TRIES_PER_MINUTE,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._initial_password = initial_password
        self._verify = verify
        self._tries = PasswordTries(tries_per_minute, now_s)

    def is_right(self, user: User, password: str, origin: str) -> bool:
        """Whether the password is the user's. Blocks for tens of milliseconds, and while others are compared.

        ``origin``: the address that sends it. Raises `Unauthenticated` after too many wrong ones.
        """
        self._tries.check(origin)
        with hashing_turn():
            # Taken here: many calls that arrive at once hold no more tries than passwords are compared.
            self._tries.begin(origin)
            if not is_password_of(user, password, self._initial_password, self._verify):
                return False
            self._tries.succeeded(origin)
            return True
