"""The descriptions of users and roles: changed by calls of the newest clients."""

from __future__ import annotations

import base64

from wire_messages import Call


def test_descriptions_of_users_and_roles_are_replaced(call: Call) -> None:
    assert call("UpdateCredential", username="root", description="the first").code == 0
    assert call("AlterRole", role_name="public", description="everybody").code == 0
    (user,) = call("SelectUser", user={"name": "root"}).results
    (role,) = call("SelectRole", role={"name": "public"}).results
    assert (user.description, role.role.description) == ("the first", "everybody")
    assert "no_such" in call("AlterRole", role_name="no_such", description="x").reason
    assert "no_such" in call("UpdateCredential", username="no_such", description="x").reason


def test_a_description_changes_with_a_password_only_if_that_is_right(call: Call) -> None:
    old = base64.b64encode(b"wrong-one").decode()
    changed = call("UpdateCredential", username="root", oldPassword=old, newPassword=old, description="x")
    assert changed.code != 0
    (user,) = call("SelectUser", user={"name": "root"}).results
    assert user.description == ""
