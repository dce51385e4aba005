"""Sign-in by API key: its user, until the key expires, is dropped, or its user is."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace

import pytest

from elanus.core.access import (
    AccessPolicy,
    User,
    first_policy,
    with_key,
    with_user,
    without_key,
    without_user,
)
from elanus.core.access_backup import restored
from elanus.core.api_keys import DAY_MS, ApiKey, KeyScope, digest_of, expiry_ms, key_id_of, key_text
from elanus.core.errors import AccessConflict, InvalidParameter, Unauthenticated
from elanus.core.key_rights import KeyRights
from elanus.core.limits import API_KEYS_OF_USER_MAX
from elanus.proxy.access.sign_in import SignIn

KEY = key_text("7", "a_secret")
NOW_MS = 1_000_000


class World:
    """A policy with one user and its key, and a clock."""

    def __init__(self, valid_days: int = 1) -> None:
        self.now_ms = NOW_MS
        key = ApiKey("7", "ada", digest_of(KEY), NOW_MS, expiry_ms(NOW_MS, valid_days))
        self.policy = with_key(with_user(first_policy(), User("ada", "hash", 1), 10), key)
        self.sign_in = SignIn(lambda: self.policy, now_s=lambda: self.now_ms / 1000)


def test_a_key_is_its_user_on_both_wires() -> None:
    world = World()
    assert world.sign_in.identity_of(KEY).user == "ada"
    for _ in range(2):
        assert world.sign_in.identity_of_header(base64.b64encode(KEY.encode()).decode()).user == "ada"


def test_a_key_ends_at_its_expiry() -> None:
    world = World(valid_days=1)
    header = base64.b64encode(KEY.encode()).decode()
    world.now_ms += DAY_MS - 1
    assert world.sign_in.identity_of_header(header).user == "ada"
    world.now_ms += 1
    for sign_in in (
        lambda: world.sign_in.identity_of(KEY).user,
        lambda: world.sign_in.identity_of_header(header).user,
    ):
        with pytest.raises(Unauthenticated, match="please check api key is correct"):
            sign_in()


def test_a_key_without_expiry_does_not_expire() -> None:
    world = World(valid_days=0)
    world.now_ms += 100_000 * DAY_MS
    assert world.sign_in.identity_of(KEY).user == "ada"


@pytest.mark.parametrize(
    "change", [lambda policy: without_key(policy, "ada", "7"), lambda policy: without_user(policy, "ada")]
)
def test_a_key_ends_when_it_or_its_user_is_dropped(change: Callable[[AccessPolicy], AccessPolicy]) -> None:
    world = World()
    assert world.sign_in.identity_of(KEY).user == "ada"
    world.policy = change(world.policy)
    assert world.policy.keys == {}
    with pytest.raises(Unauthenticated):
        world.sign_in.identity_of(KEY)


def test_the_keys_of_a_dropped_user_are_not_those_of_its_namesake() -> None:
    world = World()
    world.policy = with_user(without_user(world.policy, "ada"), User("ada", "hash", 2), 10)
    with pytest.raises(Unauthenticated):
        world.sign_in.identity_of(KEY)


@pytest.mark.parametrize(
    "token", ["elk_7_other", "elk_8_a_secret", "elk_7", "elk_7_", "elk__a_secret", "7_a_secret"]
)
def test_another_token_is_refused(token: str) -> None:
    with pytest.raises(Unauthenticated, match="please check api key is correct"):
        World().sign_in.identity_of(token)


def test_the_id_of_a_key_ends_at_the_first_underscore() -> None:
    assert [key_id_of(t) for t in (KEY, "elk_7", "ada:secret", "")] == ["7", "", "", ""]


def test_keys_have_limits() -> None:
    policy = World().policy
    for n in range(1, API_KEYS_OF_USER_MAX):
        policy = with_key(policy, ApiKey(f"k{n}", "ada", "", NOW_MS))
    with pytest.raises(AccessConflict, match="drop one first"):
        with_key(policy, ApiKey("more", "ada", "", NOW_MS))
    with pytest.raises(AccessConflict, match="not found the user"):
        with_key(policy, ApiKey("more", "eve", "", NOW_MS))
    with pytest.raises(AccessConflict, match="the user eve has no API key 7"):
        without_key(policy, "eve", "7")
    with pytest.raises(InvalidParameter, match="valid_days is 4000"):
        expiry_ms(NOW_MS, 4000)


def test_keys_come_back_with_their_users_and_only_with_them() -> None:
    saved = World(valid_days=0).policy
    back = restored(first_policy(), saved, 10, 10)
    assert SignIn(lambda: back, now_s=lambda: 1.0).identity_of(KEY).user == "ada"
    known = with_user(first_policy(), User("ada", "hash", 1), 10)
    assert restored(known, AccessPolicy(keys=saved.keys), 10, 10).keys == {}
    root = ApiKey("8", "root", digest_of(KEY), NOW_MS)
    assert restored(first_policy(), AccessPolicy(first_policy().users, keys={"8": root}), 10, 10).keys == {}


def test_a_key_comes_back_whose_roles_its_user_has_lost() -> None:
    saved = World(valid_days=0).policy
    limited = replace(saved.keys["7"], scope=KeyScope(("gone",), ("shop",)))
    back = restored(first_policy(), replace(saved, keys={"7": limited}), 10, 10)
    assert back.keys["7"].scope == limited.scope
    assert not KeyRights(back, back.keys["7"]).holds("Search", "shop", "books")


def test_a_key_that_no_server_stored_is_not_restored() -> None:
    saved = World(valid_days=0).policy
    for broken in (replace(saved.keys["7"], digest="0"), replace(saved.keys["7"], key_id="7_8")):
        with pytest.raises(InvalidParameter, match="of the user ada is not as a server stores it"):
            restored(first_policy(), replace(saved, keys={broken.key_id: broken}), 10, 10)
