"""Decisions about operations: grants, groups, the role public, and what needs no grant."""

from __future__ import annotations

import pytest

from elanus.core.access import AccessPolicy, PrivilegeGroup, Role, User, first_policy
from elanus.core.privileges import (
    GROUPS,
    LEVELS,
    PRIVILEGES,
    PRIVILEGES_OF,
    Allow,
    Deny,
    Grant,
    decide,
)
from elanus.proxy.wire.stubs import common_pb2


def allowed(grant: Grant | None, privilege: str, kind: str, database: str, *names: str) -> bool:
    grants = (grant,) if grant is not None else ()
    first = first_policy()
    policy = AccessPolicy(
        {"ada": User("ada", "h", 1, ("clerk",))},
        {**first.roles, "clerk": Role("clerk", grants)},
        {"filling": PrivilegeGroup("filling", ("Insert", "Upsert"))},
    )
    decision = decide(policy.rights(policy.users["ada"]), f"Privilege{privilege}", kind, database, names)
    assert isinstance(decision, Allow | Deny)
    return isinstance(decision, Allow)


INSERT = Grant("Collection", "books", "shop", "Insert")
INSERT_ALL = Grant("Collection", "*", "shop", "Insert")
READER = Grant("Global", "books", "shop", "CollectionReadOnly")
OWNER = Grant("Global", "books", "shop", "CollectionAdmin")


@pytest.mark.parametrize(
    ("grant", "asked", "expected"),
    [
        (None, ("Insert", "Collection", "shop", "books"), False),
        (INSERT, ("Insert", "Collection", "shop", "books"), True),
        (INSERT, ("Delete", "Collection", "shop", "books"), False),
        (INSERT, ("Insert", "Collection", "shop", "films"), False),
        (INSERT, ("Insert", "Collection", "default", "books"), False),
        (INSERT, ("Insert", "Collection", "shop"), False),
        (INSERT, ("Insert", "Collection", "shop", "books", "films"), False),
        (
            Grant("Collection", "*", "shop", "Insert"),
            ("Insert", "Collection", "shop", "books", "films"),
            True,
        ),
        (INSERT_ALL, ("Insert", "Collection", "shop"), True),
        (Grant("Collection", "books", "*", "Insert"), ("Insert", "Collection", "any", "books"), True),
        (Grant("Collection", "books", "shop", "*"), ("Search", "Collection", "shop", "books"), True),
        (Grant("Collection", "*", "*", "*"), ("CreateOwnership", "Global", "shop"), False),
        (Grant("Global", "*", "shop", "All"), ("CreateOwnership", "Global", "shop"), True),
        (Grant("Global", "*", "shop", "All"), ("Search", "Collection", "shop", "books"), True),
        (Grant("Global", "*", "shop", "All"), ("Search", "Collection", "default", "books"), False),
        (
            Grant("Global", "books", "shop", "CollectionReadOnly"),
            ("Search", "Collection", "shop", "books"),
            True,
        ),
        (
            Grant("Global", "books", "shop", "CollectionReadOnly"),
            ("Insert", "Collection", "shop", "books"),
            False,
        ),
        (
            Grant("Global", "books", "shop", "CollectionAdmin"),
            ("CreateAlias", "Global", "shop", "books"),
            True,
        ),
        (
            Grant("Global", "books", "shop", "CollectionAdmin"),
            ("CreateAlias", "Global", "shop", "films"),
            False,
        ),
        (Grant("Global", "*", "shop", "DatabaseAdmin"), ("CreateCollection", "Global", "shop", "new"), True),
        (Grant("Global", "*", "shop", "DatabaseAdmin"), ("Insert", "Collection", "shop", "books"), False),
        (Grant("Global", "*", "*", "ClusterAdmin"), ("CreateDatabase", "Global", "shop"), True),
        (Grant("Global", "*", "*", "ClusterAdmin"), ("CreateCollection", "Global", "shop", "new"), False),
        (Grant("Global", "*", "shop", "filling"), ("Upsert", "Collection", "shop", "books"), True),
        (Grant("Global", "*", "shop", "filling"), ("Delete", "Collection", "shop", "books"), False),
        (None, ("DescribeCollection", "Global", "shop", "books"), True),  # by the role public
        (None, ("IndexDetail", "Collection", "shop", "books"), True),
        (None, ("UpdateUser", "User", "default", "ada"), True),
        (None, ("UpdateUser", "User", "default", "bob"), False),
        (None, ("SelectUser", "User", "default"), False),
        (Grant("User", "*", "default", "UpdateUser"), ("UpdateUser", "User", "default", "bob"), True),
        (None, ("SelectOwnership", "Global", "default", "clerk"), True),
        (None, ("SelectOwnership", "Global", "default", "admin"), False),
        (None, ("SelectOwnership", "Global", "default"), False),
        (None, ("SelectOwnership", "Collection", "default", "clerk"), False),
    ],
)
def test_a_decision(grant: Grant | None, asked: tuple[str, ...], expected: bool) -> None:
    assert allowed(grant, asked[0], asked[1], asked[2], *asked[3:]) == expected


def test_the_privileges_and_groups_are_those_of_the_protos() -> None:
    of_protos = {name.removeprefix("Privilege") for name in common_pb2.ObjectPrivilege.keys()}  # noqa: SIM118
    old = {"GroupReadOnly", "GroupReadWrite", "GroupAdmin"}
    groups = {f"Group{name}" for name in GROUPS}
    assert of_protos - old == PRIVILEGES | groups


def test_every_privilege_is_of_one_object_type() -> None:
    kinds = list(PRIVILEGES_OF.values())
    assert frozenset().union(*kinds) == PRIVILEGES
    assert sum(map(len, kinds)) == len(PRIVILEGES)


def test_levels_do_not_overlap() -> None:
    levels = list(LEVELS.values())
    assert sum(map(len, levels)) == len(frozenset().union(*levels))


def test_a_denial_names_privilege_user_and_database() -> None:
    policy = first_policy()
    rights = policy.rights(User("ada", "h", 1))
    assert decide(rights, "PrivilegeInsert", "Collection", "shop", ("books",)) == Deny(
        "PrivilegeInsert: permission deny to ada in the `shop` database"
    )


def test_lists_show_what_is_granted_but_not_what_everybody_holds() -> None:
    first = first_policy()
    policy = AccessPolicy(
        {}, {**first.roles, "clerk": Role("clerk", (INSERT, Grant("Collection", "*", "art", "Query")))}
    )
    rights = policy.rights(User("ada", "h", 1, ("clerk",)))
    assert [rights.sees_database(name) for name in ("shop", "art", "default")] == [True, True, False]
    assert [rights.sees("shop", "books"), rights.sees("shop", "films")] == [True, False]
    assert [rights.sees("art", "films"), rights.sees("default", "books")] == [True, False]
    nobody = policy.rights(User("bob", "h", 2))
    assert not nobody.sees("shop", "books")
    assert policy.rights(User("root", "h", 3)).sees("shop", "books")
