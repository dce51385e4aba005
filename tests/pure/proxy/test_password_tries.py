"""Wrong passwords of one address are limited; other addresses, and who has signed in, do not notice."""

from __future__ import annotations

import pytest

from elanus.core.access import User, first_policy, with_user
from elanus.core.errors import Unauthenticated
from elanus.proxy.access import password_tries
from elanus.proxy.access.password_tries import PasswordTries, place_of
from elanus.proxy.access.passwords import verify_password
from elanus.proxy.access.sign_in import _NO_USER, SignIn

MINUTE_S = 60.0
NEAR, FAR = "ipv4:10.0.0.7:50112", "ipv4:10.0.0.8:50112"


class World:
    """A server with the user ada, and a count of the passwords that were looked at."""

    def __init__(self, per_minute: int = 3) -> None:
        self.now_s = 1000.0
        self.seen: list[str] = []
        policy = with_user(first_policy(), User("ada", "secret1", 7), 100)
        self.sign_in = SignIn(
            lambda: policy, "Milvus", self.verify, now_s=lambda: self.now_s, tries_per_minute=per_minute
        )

    def verify(self, password: str, stored: str) -> bool:
        self.seen.append(password)
        return password == stored

    def refused(self, token: str, origin: str = NEAR) -> str:
        with pytest.raises(Unauthenticated) as error:
            self.sign_in.identity_of(token, origin)
        return error.value.message


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
