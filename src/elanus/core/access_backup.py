"""Users, roles, privilege groups and API keys of a backup, added to those that there are."""

from __future__ import annotations

from dataclasses import replace

from elanus.core.access import AccessPolicy, with_role, with_stored_key, with_user
from elanus.core.access_grants import check_grant, with_grant, with_group, with_group_members
from elanus.core.access_names import check_group_name, check_user_name
from elanus.core.api_keys import check_stored
from elanus.core.privileges import DEFAULT_ROLES, ROOT


def restored(policy: AccessPolicy, added: AccessPolicy, users_max: int, roles_max: int) -> AccessPolicy:
    """Add what a backup holds: all of it, or nothing. Default roles and root stay as they are. API keys come
    with their users: none is added to a user who exists already.

    Raises `AccessConflict`, `InvalidParameter` when a part exists already or is not valid.
    """
    for group in added.groups.values():
        policy = with_group(policy, check_group_name(group.name))
        policy = with_group_members(policy, group.name, group.privileges, added=True)
    for role in added.roles.values():
        if role.name not in DEFAULT_ROLES:
            policy = with_role(policy, replace(role, grants=()), roles_max)
        for grant in role.grants:
            check_grant(policy, grant)
            policy = with_grant(policy, role.name, grant, granted=True)
    for user in added.users.values():
        if user.name == ROOT:
            continue
        for role_name in user.roles:
            policy.role(role_name)
        policy = with_user(policy, replace(user, name=check_user_name(user.name)), users_max)
    for key in added.keys.values():
        if key.user in added.users and key.user != ROOT:
            policy = with_stored_key(policy, check_stored(key))
    return policy
