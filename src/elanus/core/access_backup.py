"""Users, roles, privilege groups and API keys of a backup, added to those that there are."""

from __future__ import annotations

from dataclasses import replace

from elanus.core.access import (
    AccessPolicy,
    PrivilegeGroup,
    Role,
    User,
    with_role,
    with_stored_key,
    with_user,
)
from elanus.core.access_grants import check_grant, with_grant, with_group, with_group_members
from elanus.core.access_names import check_group_name, check_user_name
from elanus.core.api_keys import check_stored
from elanus.core.privileges import DEFAULT_ROLES, ROOT


def restored(policy: AccessPolicy, added: AccessPolicy, users_max: int, roles_max: int) -> AccessPolicy:
    """Add what a backup holds: all of it, or nothing. Default roles and root stay as they are. API keys come
    with their users: none is added to a user whom the backup does not have.

    A part that exists already, as the backup has it, counts as restored, so a restore may be repeated. Raises
    `AccessConflict`, `InvalidParameter` when a part exists and is another, or is not valid.
    """
    for group in added.groups.values():
        if _is_same_group(policy.groups.get(group.name), group):
            continue
        policy = with_group(policy, check_group_name(group.name))
        policy = with_group_members(policy, group.name, group.privileges, added=True)
    for role in added.roles.values():
        if _is_same_role(policy.roles.get(role.name), role):
            continue
        if role.name not in DEFAULT_ROLES:
            policy = with_role(policy, replace(role, grants=()), roles_max)
        for grant in role.grants:
            check_grant(policy, grant)
            policy = with_grant(policy, role.name, grant, granted=True)
    for user in added.users.values():
        if user.name == ROOT or _is_same_user(policy.users.get(user.name), user):
            continue
        for role_name in user.roles:
            policy.role(role_name)
        policy = with_user(policy, replace(user, name=check_user_name(user.name)), users_max)
    for key in added.keys.values():
        if key.user in added.users and key.user != ROOT and policy.keys.get(key.key_id) != key:
            policy = with_stored_key(policy, check_stored(key))
    return policy


def _is_same_group(known: PrivilegeGroup | None, saved: PrivilegeGroup) -> bool:
    return known is not None and set(known.privileges) == set(saved.privileges)


def _is_same_role(known: Role | None, saved: Role) -> bool:
    if known is None:
        return False
    return known.description == saved.description and set(known.grants) == set(saved.grants)


def _is_same_user(known: User | None, saved: User) -> bool:
    """A user gets another generation with each restore."""
    return known is not None and replace(known, generation=saved.generation) == saved
