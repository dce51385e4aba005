"""Wrong passwords of one address are limited; other addresses, and users who are signed in, do not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from elanus.core.access import User, first_policy, with_user
from elanus.core.errors import NotAuthenticated, Unauthenticated
from elanus.proxy.access import password_tries
from elanus.proxy.access.password_tries import PasswordTries, place_of
from elanus.proxy.access.passwords import verify_password
from elanus.proxy.access.sign_in import _NO_USER, SignIn
from elanus.proxy.verbs.access import Access

MINUTE_S = 60.0
HASH_S = 0.01
"""How long a hash takes in a world where many sign in at once."""
NEAR, FAR = "ipv4:10.0.0.7:50112", "ipv4:10.0.0.8:50112"


class World:
    """A server with the user ada, and a count of the passwords that were looked at."""

    def __init__(self, per_minute: int = 3) -> None:
        self.now_s = 1000.0
        self.seen: list[str] = []
        known = with_user(first_policy(), User("ada", "secret1", 7), 100)
        self.policy = lambda: known
        self.sign_in = SignIn(
            self.policy, "Milvus", self.verify, now_s=lambda: self.now_s, tries_per_minute=per_minute
        )

    def verify(self, password: str, stored: str) -> bool:
        self.seen.append(password)
        return password == stored

    def refused(self, token: str, origin: str = NEAR) -> str:
        with pytest.raises(Unauthenticated) as error:
            self.sign_in.identity_of(token, origin)
        return error.value.message


class SlowWorld(World):
    """Has many users whose password is secret1, and hashes that take a while."""

    def __init__(self, per_minute: int, users: int = 1) -> None:
        super().__init__(per_minute)
        policy = first_policy()
        for n in range(users):
            policy = with_user(policy, User(f"user{n}", "secret1", 7), 100)
        self.sign_in = SignIn(
            lambda: policy, "", self.verify, now_s=lambda: self.now_s, tries_per_minute=per_minute
        )

    def verify(self, password: str, stored: str) -> bool:
        time.sleep(HASH_S)
        return super().verify(password, stored)

    def all_at_once(self, tokens: Sequence[str]) -> list[str]:
        """The users, or the texts of the refusals."""
        ready = threading.Barrier(len(tokens))

        def send(token: str) -> str:
            ready.wait(60)
            try:
                return self.sign_in.identity_of(token, NEAR).user
            except Unauthenticated as error:
                return error.message

        with ThreadPoolExecutor(len(tokens)) as pool:
            return list(pool.map(send, tokens))


def test_calls_that_arrive_at_once_with_a_right_password_all_sign_in() -> None:
    world = SlowWorld(per_minute=1)
    assert world.all_at_once(["user0:secret1"] * 64) == ["user0"] * 64
    assert len(world.seen) == 1, "one is verified, the others wait for it"


def test_users_of_one_address_that_sign_in_at_once_take_no_tries_from_each_other() -> None:
    world = SlowWorld(per_minute=4, users=32)
    found = world.all_at_once([f"user{n}:secret1" for n in range(32)])
    assert found == [f"user{n}" for n in range(32)]


def test_guesses_that_arrive_at_once_are_limited_like_others() -> None:
    world = SlowWorld(per_minute=5)
    found = world.all_at_once([f"user0:{n}" for n in range(64)])
    assert len(world.seen) == 5
    assert sum("auth check failure" in text for text in found) == 5
    assert sum("too many" in text for text in found) == 59


def test_further_guesses_of_an_address_are_not_looked_at() -> None:
    world = World()
    for n in range(3):
        assert "auth check failure" in world.refused(f"ada:{n}", f"ipv4:10.0.0.7:{n}")
    assert world.refused("ada:3") == "too many wrong passwords from 10.0.0.7: try again in 20 s"
    assert "too many" in world.refused("ada:secret1")
    assert world.seen == ["0", "1", "2"]
    assert world.sign_in.identity_of("ada:secret1", FAR).user == "ada"


def test_who_has_signed_in_is_not_affected() -> None:
    world = World()
    world.sign_in.identity_of("ada:secret1", NEAR)
    for n in range(4):
        world.refused(f"root:{n}")
    assert world.sign_in.identity_of("ada:secret1", NEAR).user == "ada"


def test_the_limit_is_per_minute_and_right_passwords_do_not_count() -> None:
    world = World()
    for n in range(3):
        world.refused(f"ada:{n}")
    world.now_s += MINUTE_S / 3
    assert world.sign_in.identity_of("ada:secret1", NEAR).user == "ada"
    assert "auth check failure" in world.refused("ada:3"), "the try came back"
    assert "too many" in world.refused("ada:4")


def test_a_wrong_password_that_is_repeated_counts_once() -> None:
    world = World()
    for _ in range(9):
        assert "auth check failure" in world.refused("ada:wrong")
    assert world.sign_in.identity_of("ada:secret1", NEAR).user == "ada"


def test_names_that_are_no_users_are_looked_at_like_others() -> None:
    world = World()
    for n in range(3):
        assert "auth check failure" in world.refused(f"eve{n}:secret1")
    assert len(world.seen) == 3, "the time of a refusal does not say who exists"
    assert "too many" in world.refused("ada:secret1")
    assert not verify_password("secret1", _NO_USER.password_hash)


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    world = World()
    world.refused("ada:0")
    world.now_s -= 2 * MINUTE_S
    world.refused("ada:1")
    world.refused("ada:2")
    assert "too many" in world.refused("ada:3")


def test_zero_is_no_limit() -> None:
    world = World(per_minute=0)
    assert all("auth check failure" in world.refused(f"ada:{n}") for n in range(100))


def test_addresses_that_are_kept_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_tries, "_PLACES_MAX", 2)
    tries = PasswordTries(1, lambda: 0.0)
    for n in range(3):
        tries.begin(f"10.0.0.{n}")
    assert len(tries._left) == 2


def test_old_passwords_that_are_sent_with_new_ones_count_as_tries_of_the_same_address() -> None:
    world = World()
    proxy: Any = SimpleNamespace(policies=SimpleNamespace(current=world.policy))
    verbs = Access(lambda: proxy, proxy, tuple, world.sign_in.passwords)
    assert "auth check failure" in world.refused("ada:0")
    for n in (1, 2):
        with pytest.raises(NotAuthenticated, match="old password not correct for ada"):
            verbs.change_password("ada", str(n), "better-one", NEAR)
    for old in ("3", "secret1"):
        with pytest.raises(Unauthenticated, match=r"too many wrong passwords from 10\.0\.0\.7"):
            verbs.change_password("ada", old, "better-one", NEAR)
    assert "too many" in world.refused("ada:4")
    assert world.seen == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        ("ipv4:10.0.0.7:50112", "10.0.0.7"),
        ("10.0.0.7", "10.0.0.7"),
        ("ipv6:%5B2001:db8::1%5D:50112", "2001:db8::/64"),
        ("ipv6:[2001:db8:0:0:ffff::1]:9", "2001:db8::/64"),
        ("2001:db8::7", "2001:db8::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("unix:", "unix"),
        ("", ""),
    ],
)
def test_what_an_address_is(origin: str, place: str) -> None:
    assert place_of(origin) == place
