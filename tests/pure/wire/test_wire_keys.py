"""The calls of `elanus keys`, through the guard: own keys, those of others, and those of root."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fake_verbs import FakeVerbs
from wire_calls import observe_nothing

from elanus.api.keys import KeyInfo, KeysApi
from elanus.core import access
from elanus.core.access import Role
from elanus.core.api_keys import KeyScope
from elanus.core.errors import AccessConflict, CollectionNotFound, NotPermitted, PermissionDenied
from elanus.core.privileges import Grant
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.guard import AccessGuard
from elanus.proxy.access.sign_in import SignIn
from elanus.proxy.calls import Calls
from elanus.proxy.wire.interfaces import interface_operations
from elanus.proxy.wire.keys import Keys
from elanus.rpc.methods import methods_of


class World:
    """Users ada and bob, and eve, who may change users."""

    def __init__(self) -> None:
        self.verbs = verbs = FakeVerbs()
        for name in ("ada", "bob", "eve"):
            verbs.create_user(name, "secret", "")
        clerk = Role("clerk", (Grant("User", "*", "*", "UpdateUser"), Grant("User", "*", "*", "SelectUser")))
        verbs.policy = access.with_role(verbs.policy, clerk, 10)
        verbs.set_membership("eve", "clerk", True)
        guard = AccessGuard(verbs.access_policy, self.no_name)
        self.calls = Calls(interface_operations(KeysApi, Keys(verbs)), guard, observe_nothing)

    @staticmethod
    def no_name(database: str, name: str) -> str:
        raise CollectionNotFound(name)

    def ask(self, caller: str, method: str, *arguments: Any) -> Any:
        """``caller``: a user, or a user, a slash and the id of its key."""
        name, _, key = caller.partition("/")
        sent = msgspec.msgpack.encode(methods_of(KeysApi)[method].bound(arguments, {}))
        reply = self.calls.answer(f"KeysApi.{method}", sent, Caller(user=name, key=key))
        return methods_of(KeysApi)[method].result_of(reply, "the proxy")


def test_users_create_list_and_drop_their_own_keys() -> None:
    world = World()
    made = world.ask("ada", "create_key", "ada", 1, "ingest")
    assert made.key.startswith("elk_")
    assert SignIn(world.verbs.access_policy, now_s=lambda: 1.0).identity_of(made.key).user == "ada"
    assert world.ask("ada", "list_keys", "ada") == (
        KeyInfo(made.info.key_id, "ada", 1_000, 1_000 + 24 * 3600 * 1000, "ingest"),
    )
    world.ask("ada", "drop_key", "ada", made.info.key_id)
    assert world.ask("ada", "list_keys", "ada") == ()


@pytest.mark.parametrize(
    "call", [("create_key", "bob", 0, ""), ("list_keys", "bob"), ("list_keys", ""), ("drop_key", "bob", "1")]
)
def test_keys_of_others_need_a_privilege(call: tuple[Any, ...]) -> None:
    world = World()
    key_id = world.ask("bob", "create_key", "bob", 0, "").info.key_id
    call = tuple(key_id if part == "1" else part for part in call)
    with pytest.raises(PermissionDenied):
        world.ask("ada", *call)
    world.ask("eve", *call)


def test_a_key_is_dropped_as_one_of_its_own_user_alone() -> None:
    world = World()
    key_id = world.ask("bob", "create_key", "bob", 0, "").info.key_id
    with pytest.raises(AccessConflict, match="has no API key"):
        world.ask("ada", "drop_key", "ada", key_id)


def test_who_may_change_users_gets_no_key_of_root() -> None:
    world = World()
    world.verbs.set_membership("bob", "admin", True)
    for user in ("root", "bob"):
        with pytest.raises(NotPermitted, match="may do everything"):
            world.ask("eve", "create_key", user, 0, "")
    assert world.ask("bob", "create_key", "root", 0, "").info.user == "root"


def test_a_server_without_users_creates_no_keys() -> None:
    world = World()
    with pytest.raises(NotPermitted, match=r"proxy\.authorization_enabled"):
        Keys(world.verbs).create_key(Caller(), "ada", 0, "")
    assert world.verbs.policy.keys == {}


@pytest.mark.parametrize("scope", [KeyScope(("clerk",)), KeyScope((), ("shop",))])
def test_a_limited_key_creates_no_keys_and_changes_no_user(scope: KeyScope) -> None:
    world = World()
    world.verbs.set_membership("ada", "clerk", True)
    key_id = world.ask("ada", "create_key", "ada", 0, "", scope).info.key_id
    assert world.ask("ada", "list_keys", "ada")[0].scope == scope
    refusal = NotPermitted if scope.roles else PermissionDenied
    with pytest.raises(
        refusal, match="a limited API key creates no keys" if scope.roles else "permission deny"
    ):
        world.ask(f"ada/{key_id}", "create_key", "ada", 0, "")
    whole = world.ask("ada", "create_key", "ada", 0, "").info.key_id
    assert world.ask(f"ada/{whole}", "create_key", "ada", 0, "").info.user == "ada"


def test_a_key_is_limited_to_roles_of_its_user() -> None:
    world = World()
    with pytest.raises(AccessConflict, match="the user bob has not the role clerk"):
        world.ask("bob", "create_key", "bob", 0, "", KeyScope(("clerk",)))
    with pytest.raises(AccessConflict, match="not found the role"):
        world.ask("root", "create_key", "root", 0, "", KeyScope(("nobody",)))
    assert world.ask("root", "create_key", "root", 0, "", KeyScope(("clerk",))).info.scope.roles == ("clerk",)
