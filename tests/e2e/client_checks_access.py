"""Checks of `client_program`: users, roles, grants and privilege groups. They leave none behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymilvus
from client_base import check, program
from pymilvus import MilvusClient, Role, utility

USER, PASSWORD = "somebody", "A-password1"
ROLE = "reader"


def client() -> MilvusClient:
    return MilvusClient(uri=program.uri)


@contextmanager
def role() -> Iterator[Role]:
    made = Role(ROLE)
    made.create()
    yield made
    made.drop()


@check("Users", "create, list, change the password, drop")
def _() -> None:
    utility.create_user(USER, PASSWORD)
    assert utility.list_usernames() == ["root", USER]
    utility.update_password(USER, PASSWORD, PASSWORD + "2")
    text = "it was accepted"
    try:
        utility.update_password(USER, PASSWORD, PASSWORD)
    except pymilvus.MilvusException as error:
        text = error.message
    assert "old password not correct" in text, text
    utility.delete_user(USER)
    assert utility.list_usernames() == ["root"]


@check("Users", "descriptions of users and roles, changed", needs=hasattr(MilvusClient, "alter_role"))
def _() -> None:
    utility.create_user(USER, PASSWORD)
    with role():
        client().update_user(USER, "reads at night")
        client().alter_role(ROLE, "may read")
        assert client().describe_user(USER)["description"] == "reads at night"
        assert client().describe_role(ROLE)["description"] == "may read"
    utility.delete_user(USER)


@check("Users", "roles and their members")
def _() -> None:
    utility.create_user(USER, PASSWORD)
    with role() as made:
        made.add_user(USER)
        assert list(made.get_users()) == [USER]
        assert made.is_exist()
        made.remove_user(USER)
        assert not made.get_users()
    assert not Role(ROLE).is_exist()
    utility.delete_user(USER)


@check("Users", "grants on an object")
def _() -> None:
    with role() as made:
        made.grant("Collection", "*", "Search")
        made.grant("Global", "*", "CreateCollection")
        grants = {(g.object, g.object_name, g.privilege) for g in made.list_grants().groups}
        assert grants == {("Collection", "*", "Search"), ("Global", "*", "CreateCollection")}
        made.revoke("Collection", "*", "Search")
        made.revoke("Global", "*", "CreateCollection")
        assert not made.list_grants().groups


@check("Users", "grants of groups on a collection", needs=hasattr(MilvusClient, "grant_privilege_v2"))
def _() -> None:
    user = client()
    with role():
        user.grant_privilege_v2(ROLE, "CollectionReadOnly", "books", db_name="default")
        (grant,) = user.describe_role(ROLE)["privileges"]
        assert (grant["privilege"], grant["object_name"]) == ("CollectionReadOnly", "books")
        user.revoke_privilege_v2(ROLE, "CollectionReadOnly", "books", db_name="default")


@check("Users", "privilege groups of one's own", needs=hasattr(MilvusClient, "create_privilege_group"))
def _() -> None:
    user = client()
    user.create_privilege_group("filling")
    user.add_privileges_to_group("filling", ["Insert", "Upsert"])
    groups = {group["privilege_group"]: set(group["privileges"]) for group in user.list_privilege_groups()}
    assert groups["filling"] == {"Insert", "Upsert"}
    assert "ClusterAdmin" in groups
    user.remove_privileges_from_group("filling", ["Upsert"])
    user.drop_privilege_group("filling")
