"""Users, roles and API keys, and the rules for changing them. Pure: the metadata is elsewhere.

An `AccessPolicy` is everything that sign-in and the decisions need. It is small, because its parts are
limited in number, so proxies keep it as a whole. A change of it is a function from one policy to the next; it
raises the error that the client gets, with the reference's text. Changes of grants and privilege groups are
in `elanus.core.access_grants`, the rules for names in `elanus.core.access_names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elanus.core.api_keys import ApiKey
from elanus.core.errors import AccessConflict, NotPermitted
from elanus.core.limits import (
    API_KEYS_OF_USER_MAX,
)
from elanus.core.privileges import (
    ADMIN,
    DEFAULT_ROLES,
    PUBLIC,
    PUBLIC_GRANTS,
    ROOT,
    Grant,
    Rights,
)

_NO_ROLE = "not found the role, maybe the role isn't existed or internal system error"
_NO_USER = "not found the user, maybe the user isn't existed or internal system error"


@dataclass(frozen=True, slots=True)
class User:
    """``password_hash``: as `elanus.proxy.access.passwords` makes it; "" for root until its first change.

    ``generation``: another one for each password of each user, also of users that were dropped.
    """

    name: str
    password_hash: str
    generation: int
    roles: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    grants: tuple[Grant, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class PrivilegeGroup:
    """A group that users have defined; its members are privileges."""

    name: str
    privileges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """All users, roles, privilege groups and API keys. ``version`` grows with every change."""

    users: Mapping[str, User] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    groups: Mapping[str, PrivilegeGroup] = field(default_factory=dict)
    version: int = 0
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    """API keys, by their ids."""

    def role(self, name: str) -> Role:
        """Raises `AccessConflict`."""
        try:
            return self.roles[name]
        except KeyError:
            raise AccessConflict(f"{_NO_ROLE}: {name}") from None

    def user(self, name: str) -> User:
        """Raises `AccessConflict`."""
        try:
            return self.users[name]
        except KeyError:
            raise AccessConflict(f"{_NO_USER}: {name}") from None

    def rights(self, user: User) -> Rights:
        roles = [self.roles[name] for name in user.roles if name in self.roles and name != PUBLIC]
        grants = [grant for role in roles for grant in role.grants]
        names = (role.name for role in roles)
        return Rights(user.name, names, grants, self.public_grants, self.group_members)

    @property
    def public_grants(self) -> tuple[Grant, ...]:
        """The grants that every user has."""
        return self.roles[PUBLIC].grants if PUBLIC in self.roles else ()

    @property
    def group_members(self) -> dict[str, frozenset[str]]:
        """The members of the groups that users have defined."""
        return {group.name: frozenset(group.privileges) for group in self.groups.values()}

    def members(self, role: str) -> list[str]:
        return [user.name for user in self.users.values() if role in user.roles]


def first_policy() -> AccessPolicy:
    """Return the policy of a new system: root, and the roles admin and public, of which it is no member."""
    return AccessPolicy(
        {ROOT: User(ROOT, "", 0)},
        {ADMIN: Role(ADMIN), PUBLIC: Role(PUBLIC, PUBLIC_GRANTS)},
    )


# users


def with_user(policy: AccessPolicy, user: User, users_max: int) -> AccessPolicy:
    """Raises `AccessConflict` when the user exists or there are too many."""
    if user.name in policy.users:
        raise AccessConflict(f"user already exists: {user.name}")
    if len(policy.users) >= users_max:
        raise AccessConflict("unable to add user because the number of users has reached the limit")
    return replace(policy, users={**policy.users, user.name: user})


def with_password(
    policy: AccessPolicy, name: str, password_hash: str, former: int, generation: int
) -> AccessPolicy:
    """``former``: the generation whose password the caller knew. Raises `AccessConflict`."""
    user = policy.user(name)
    if user.generation != former:
        raise AccessConflict(
            f"the password of {name} was changed meanwhile: sign in with the new one and retry"
        )
    return replace(
        policy,
        users={**policy.users, name: replace(user, password_hash=password_hash, generation=generation)},
    )


def with_user_description(policy: AccessPolicy, name: str, description: str) -> AccessPolicy:
    """Raises `AccessConflict` when there is no such user."""
    user = replace(policy.user(name), description=description)
    return replace(policy, users={**policy.users, name: user})


def without_user(policy: AccessPolicy, name: str) -> AccessPolicy:
    """Dropping a user that does not exist succeeds, as in the reference. Raises `NotPermitted` for root."""
    if name == ROOT:
        raise NotPermitted("root user cannot be deleted: privilege not permitted")
    return replace(
        policy,
        users={n: user for n, user in policy.users.items() if n != name},
        keys={key_id: key for key_id, key in policy.keys.items() if key.user != name},
    )


# API keys


def with_key(policy: AccessPolicy, key: ApiKey) -> AccessPolicy:
    """Raises `AccessConflict` when the user does not exist, has too many keys, or has not the key's roles."""
    user = policy.user(key.user)
    may_everything = policy.rights(user).may_everything
    for name in key.scope.roles:
        policy.role(name)
        if name not in user.roles and not may_everything:
            raise AccessConflict(
                f"the user {user.name} has not the role {name}: limit the key to roles of its user"
            )
    return with_stored_key(policy, key)


def with_stored_key(policy: AccessPolicy, key: ApiKey) -> AccessPolicy:
    """As `with_key`, of a key whose user may have lost its roles since: they give it nothing then."""
    policy.user(key.user)
    if key.key_id in policy.keys:
        raise AccessConflict(f"API key already exists: {key.key_id}")
    if sum(other.user == key.user for other in policy.keys.values()) >= API_KEYS_OF_USER_MAX:
        raise AccessConflict(
            f"the user {key.user} has {API_KEYS_OF_USER_MAX} API keys, and may have no more: drop one first"
        )
    return replace(policy, keys={**policy.keys, key.key_id: key})


def without_key(policy: AccessPolicy, user: str, key_id: str) -> AccessPolicy:
    """Raises `AccessConflict` when the user has no such key."""
    key = policy.keys.get(key_id)
    if key is None or key.user != user:
        raise AccessConflict(f"the user {user} has no API key {key_id}")
    return replace(policy, keys={n: key for n, key in policy.keys.items() if n != key_id})


# roles


def with_role(policy: AccessPolicy, role: Role, roles_max: int) -> AccessPolicy:
    """Raises `AccessConflict` when the role exists or there are too many."""
    if role.name in policy.roles:
        raise AccessConflict(f'role [name:"{role.name}"] already exists')
    if len(policy.roles) >= roles_max:
        raise AccessConflict("unable to create role because the number of roles has reached the limit")
    return replace(policy, roles={**policy.roles, role.name: role})


def with_role_description(policy: AccessPolicy, name: str, description: str) -> AccessPolicy:
    """Raises `AccessConflict` when there is no such role."""
    role = replace(policy.role(name), description=description)
    return replace(policy, roles={**policy.roles, name: role})


def without_role(policy: AccessPolicy, name: str, force: bool) -> AccessPolicy:
    """``force``: with its grants. Raises `AccessConflict`; `NotPermitted` for a default role."""
    if name in DEFAULT_ROLES:
        raise NotPermitted(
            f"the role[{name}] is a default role, which can't be dropped: privilege not permitted"
        )
    if policy.role(name).grants and not force:
        raise AccessConflict(
            "fail to drop the role that it has privileges. Use REVOKE API to revoke privileges"
        )
    return replace(
        policy,
        roles={n: role for n, role in policy.roles.items() if n != name},
        users={n: _outside(user, name) for n, user in policy.users.items()},
    )


def _outside(user: User, role: str) -> User:
    if role not in user.roles:
        return user
    return replace(user, roles=tuple(r for r in user.roles if r != role))


def with_membership(policy: AccessPolicy, user: str, role: str, member: bool) -> AccessPolicy:
    """Make a user a member of a role, or no member. Ending a membership that is none succeeds.

    Raises `AccessConflict`.
    """
    policy.role(role)
    if not member:
        users = {n: _outside(u, role) if n == user else u for n, u in policy.users.items()}
        return replace(policy, users=users)
    found = policy.user(user)
    if role in found.roles:
        return policy
    return replace(policy, users={**policy.users, user: replace(found, roles=(*found.roles, role))})
