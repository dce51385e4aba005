"""The rights of limited API keys: a part of their user's, whatever these are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elanus.core.access import AccessPolicy, Role, User, first_policy, with_role, with_user, without_role
from elanus.core.api_keys import ApiKey, KeyScope, check_scope
from elanus.core.errors import InvalidDatabaseName, InvalidParameter
from elanus.core.key_rights import IN_DATABASE, KeyRights
from elanus.core.limits import API_KEY_SCOPE_MAX
from elanus.core.privileges import ALLOW, PRIVILEGES, PUBLIC, USER, Grant, decide

READER = Role("reader", (Grant("Collection", "books", "shop", "Search"),))
WRITER = Role(
    "writer", (Grant("Collection", "*", "*", "Insert"), Grant("Global", "*", "*", "CreateDatabase"))
)


def policy_of(*roles: str) -> AccessPolicy:
    policy = with_role(with_role(first_policy(), READER, 9), WRITER, 9)
    policy = replace(policy, roles={**policy.roles, PUBLIC: Role(PUBLIC)})
    return with_user(policy, User("ada", "", 1, roles), 9)


def rights(policy: AccessPolicy, user: str = "ada", *, roles: str = "", databases: str = "") -> KeyRights:
    scope = KeyScope(tuple(roles.split()), tuple(databases.split()))
    return KeyRights(policy, ApiKey("7", user, "", 1, scope=scope))


def test_a_key_of_a_role_has_the_rights_of_that_role_alone() -> None:
    found = rights(policy_of("reader", "writer"), roles="reader")
    assert found.holds("Search", "shop", "books")
    assert not found.holds("Insert", "shop", "books")
    assert (found.sees("shop", "books"), found.sees("shop", "films")) == (True, False)


def test_a_role_that_was_dropped_or_taken_from_the_user_gives_its_key_nothing() -> None:
    policy = policy_of("reader", "writer")
    for later in (without_role(policy, "reader", force=True), policy_of("writer")):
        found = rights(later, roles="reader")
        assert not found.holds("Search", "shop", "books")
        assert not found.holds("Insert", "shop", "books")
        assert not found.sees_database("shop")


def test_a_key_of_a_database_has_nothing_outside() -> None:
    found = rights(policy_of("reader", "writer"), databases="shop")
    assert found.holds("Insert", "shop", "films")
    assert not found.holds("Insert", "default", "films")
    assert not found.holds("CreateDatabase", "shop", "*")
    assert [name for name in ("shop", "default") if found.sees_database(name)] == ["shop"]
    assert not found.sees("default", "books")


@pytest.mark.parametrize("user", ["root", "ada"])
def test_who_may_do_everything_does_by_such_a_key_what_concerns_the_database(user: str) -> None:
    found = rights(policy_of("admin"), user, databases="shop")
    assert not found.may_everything
    for privilege in PRIVILEGES:
        assert found.holds(privilege, "shop", "*") == (privilege in IN_DATABASE)
        assert not found.holds(privilege, "default", "*")
    assert (found.sees("shop", "any"), found.sees_database("default")) == (True, False)


def test_administrators_may_give_a_key_any_role() -> None:
    found = rights(policy_of(), "root", roles="reader")
    assert (found.may_everything, found.holds("Search", "shop", "books")) == (False, True)
    assert not found.holds("Insert", "shop", "books")
    assert rights(policy_of("admin", "reader"), roles="admin").may_everything
    assert not rights(policy_of("reader"), roles="admin").may_everything


def test_a_limited_key_does_not_change_its_user() -> None:
    policy = policy_of("reader")
    assert (
        decide(policy.rights(policy.users["ada"]), "PrivilegeUpdateUser", USER, "default", ("ada",)) == ALLOW
    )
    assert decide(rights(policy, roles="reader"), "PrivilegeUpdateUser", USER, "default", ("ada",)) != ALLOW


def test_scopes_have_limits() -> None:
    many = tuple(f"r{n}" for n in range(API_KEY_SCOPE_MAX + 1))
    for scope in (KeyScope(many), KeyScope((), many), KeyScope(("",))):
        with pytest.raises(InvalidParameter):
            check_scope(scope)
    with pytest.raises(InvalidDatabaseName):
        check_scope(KeyScope((), ("*",)))
    assert check_scope(KeyScope(many[1:], many[1:])).is_limited
