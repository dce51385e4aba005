"""Users, roles and grants of the fake verbs: the real rules over a policy in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from elanus.core import access, access_grants, access_names
from elanus.core.access import AccessPolicy, Role, User, first_policy
from elanus.core.access_backup import restored
from elanus.core.api_keys import ApiKey, KeyScope, digest_of, expiry_ms, key_text
from elanus.core.errors import NotAuthenticated
from elanus.core.privileges import Grant, object_type_of

LIMIT = 100


class FakeAccess:
    """Implements `elanus.proxy.api.access.AccessVerbs`. A password is its own hash."""

    def __init__(self) -> None:
        super().__init__()
        self.policy: AccessPolicy = first_policy()
        self._generations = itertools.count(1)

    def access_policy(self) -> AccessPolicy:
        return self.policy

    def create_user(self, name: str, password: str, description: str) -> None:
        access_names.check_user_name(name)
        access_names.check_password(password)
        user = User(name, password, next(self._generations), description=description)
        self.policy = access.with_user(self.policy, user, LIMIT)

    def change_password(self, name: str, old: str, new: str, origin: str) -> None:
        access_names.check_password(new)
        user = self.policy.users.get(name)
        if user is None or user.password_hash != old:
            raise NotAuthenticated(f"old password not correct for {name}: not authenticated")
        self.policy = access.with_password(self.policy, name, new, user.generation, next(self._generations))

    def drop_user(self, name: str) -> None:
        self.policy = access.without_user(self.policy, name)

    def describe_user(self, name: str, description: str) -> None:
        self.policy = access.with_user_description(self.policy, name, description)

    def describe_role(self, name: str, description: str) -> None:
        self.policy = access.with_role_description(self.policy, name, description)

    def create_api_key(
        self, user: str, valid_days: int, description: str, scope: KeyScope
    ) -> tuple[ApiKey, str]:
        key_id = str(next(self._generations))
        text = key_text(key_id, "secret")
        key = ApiKey(key_id, user, digest_of(text), 1_000, expiry_ms(1_000, valid_days), description, scope)
        self.policy = access.with_key(self.policy, key)
        return key, text

    def drop_api_key(self, user: str, key_id: str) -> None:
        self.policy = access.without_key(self.policy, user, key_id)

    def create_role(self, name: str, description: str) -> None:
        access_names.check_name(name, "role name")
        self.policy = access.with_role(self.policy, Role(name, description=description), LIMIT)

    def drop_role(self, name: str, force: bool) -> None:
        self.policy = access.without_role(self.policy, name, force)

    def set_membership(self, user: str, role: str, member: bool) -> None:
        self.policy = access.with_membership(self.policy, user, role, member)

    def set_grant(self, role: str, grant: Grant, granted: bool, placed: bool) -> None:
        self.policy.role(role)
        if placed:
            access_grants.check_placed_grant(self.policy, grant.privilege, grant.database, grant.object_name)
            grant = replace(grant, object_type=object_type_of(grant.privilege))
        else:
            access_grants.check_grant(self.policy, grant)
        self.policy = access_grants.with_grant(self.policy, role, grant, granted)

    def create_privilege_group(self, name: str) -> None:
        self.policy = access_grants.with_group(self.policy, access_names.check_group_name(name))

    def drop_privilege_group(self, name: str) -> None:
        self.policy = access_grants.without_group(self.policy, name)

    def change_privilege_group(self, name: str, privileges: Sequence[str], added: bool) -> None:
        access_names.check_group_name(name)
        self.policy = access_grants.with_group_members(self.policy, name, tuple(privileges), added)

    def restore_access(self, added: AccessPolicy) -> None:
        self.policy = restored(self.policy, added, LIMIT, LIMIT)
