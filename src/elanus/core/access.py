"""Users, roles and privilege groups, and every rule for changing them. Pure: the metadata is elsewhere.

An `AccessPolicy` is everything that sign-in and the decisions need. It is small, because its parts are
limited in number, so proxies keep it as a whole. A change of it is a function from one policy to the next; it
raises the error that the client gets, with the reference's text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elanus.core.api_keys import ApiKey
from elanus.core.errors import AccessConflict, InvalidParameter, NotPermitted
from elanus.core.limits import (
    API_KEYS_OF_USER_MAX,
    GRANTS_OF_ROLE_MAX,
    NAME_LENGTH_MAX_CHARS,
    PASSWORD_MAX_BYTES,
    PASSWORD_MIN_BYTES,
    PRIVILEGE_GROUPS_MAX,
    USER_NAME_MAX_CHARS,
)
from elanus.core.privileges import (
    ADMIN,
    ANY,
    CLUSTER_LEVEL,
    COLLECTION_LEVEL,
    DATABASE_LEVEL,
    DEFAULT_ROLES,
    GROUPS,
    PRIVILEGES_OF,
    PUBLIC,
    PUBLIC_GRANTS,
    ROOT,
    Grant,
    Rights,
    is_defined,
    level_of,
)

_NO_ROLE = "not found the role, maybe the role isn't existed or internal system error"
_NO_USER = "not found the user, maybe the user isn't existed or internal system error"
_USER_NAME = re.compile(r"[A-Za-z0-9_.-]")
_NAME = re.compile(r"[A-Za-z0-9_$]")
_GROUP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class User:
    """``password_hash``: as `elanus.proxy.passwords` makes it; "" for root until its first change.

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


# names


def check_user_name(name: str) -> str:
    """Return the name unchanged. Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter("username must be not empty")
    if len(name) > USER_NAME_MAX_CHARS:
        raise InvalidParameter(
            f"invalid username {name} with length {len(name)}, the length of username must be less than "
            f"{USER_NAME_MAX_CHARS}"
        )
    if not name[0].isascii() or not name[0].isalpha():
        raise InvalidParameter(
            f"invalid user name {name}, the first character must be a letter, but got {name[0]}"
        )
    for character in name:
        if not _USER_NAME.match(character):
            raise InvalidParameter(
                f"invalid user name {name}, username must contain only numbers, letters, underscores, dots, "
                f"and hyphens, but got {character}"
            )
    return name


def check_password(password: str) -> str:
    """Return the password unchanged. Raises `InvalidParameter`, which does not show it."""
    size = len(password.encode())
    if not PASSWORD_MIN_BYTES <= size <= PASSWORD_MAX_BYTES:
        raise InvalidParameter(
            f"invalid password length: invalid parameter[{size} out of range "
            f"{PASSWORD_MIN_BYTES} <= value <= {PASSWORD_MAX_BYTES}]"
        )
    return password


def check_name(name: str, kind: str) -> str:
    """Check the name of a role, an object or an object type. Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter(
            f"{kind} should be not empty: invalid parameter[expected=not empty][actual={name}]"
        )
    if len(name) > NAME_LENGTH_MAX_CHARS:
        raise InvalidParameter(
            f"the length of {kind} must be not greater than limit: invalid parameter"
            f"[{len(name)} out of range 0 <= value <= {NAME_LENGTH_MAX_CHARS}]"
        )
    if name[0] != "_" and not (name[0].isascii() and name[0].isalpha()):
        raise InvalidParameter(
            f"the first character of {kind} must be an underscore or letter: "
            f"invalid parameter[expected={ord('_')}][actual={ord(name[0])}]"
        )
    for place, character in enumerate(name):
        if not _NAME.match(character):
            raise InvalidParameter(
                f"{kind} can only contain numbers, letters, dollars and underscores, "
                f"found {character} at {place}"
            )
    return name


def check_group_name(name: str) -> str:
    """Raises `InvalidParameter`."""
    if not name.strip():
        raise InvalidParameter("privilege group name should not be empty")
    if len(name) > NAME_LENGTH_MAX_CHARS:
        raise InvalidParameter(
            f"the length of a privilege group name {name} must be less than "
            f"{NAME_LENGTH_MAX_CHARS} characters"
        )
    if name[0] != "_" and not (name[0].isascii() and name[0].isalpha()):
        raise InvalidParameter(
            f"the first character of a privilege group name {name} must be an underscore or letter"
        )
    if not _GROUP_NAME.match(name):
        raise InvalidParameter(
            f"privilege group name {name} can only contain numbers, letters and underscores"
        )
    return name


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


# grants


def check_grant(policy: AccessPolicy, grant: Grant) -> None:
    """Check a grant that names its object type. Raises `AccessConflict`, `InvalidParameter`."""
    if grant.object_type not in PRIVILEGES_OF:
        raise AccessConflict(
            f"not found the object type[name: {grant.object_type}], supported the object types: "
            f"[{' '.join(PRIVILEGES_OF)}]: the object entity in the request is nil or invalid"
        )
    if grant.privilege == ANY:
        return
    if not is_defined(grant.privilege) and grant.privilege not in policy.groups:
        raise AccessConflict(f"not found the privilege name[{grant.privilege}]")
    is_group = grant.privilege in GROUPS or grant.privilege in policy.groups
    if not is_group and grant.privilege not in PRIVILEGES_OF[grant.object_type]:
        raise AccessConflict(
            f"not found the privilege name[{grant.privilege}] in object[{grant.object_type}]"
        )


def check_placed_grant(policy: AccessPolicy, privilege: str, database: str, collection: str) -> None:
    """Check a grant that names a database and a collection. Raises `AccessConflict`, `InvalidParameter`."""
    if privilege == ANY:
        return
    members = GROUPS.get(privilege)
    if members is None and privilege in policy.groups:
        members = frozenset(policy.groups[privilege].privileges)
    elif members is None and not is_defined(privilege):
        raise AccessConflict(f"not found the privilege name[{privilege}]")
    level = level_of(sorted(members)) if members else ""
    if level == CLUSTER_LEVEL and (database != ANY or collection != ANY):
        raise InvalidParameter(
            f"dbName and collectionName should be * for the cluster level privilege: {privilege}"
        )
    if level == DATABASE_LEVEL and collection not in ("", ANY):
        raise InvalidParameter(f"collectionName should be * for the database level privilege: {privilege}")
    if level == COLLECTION_LEVEL and database == ANY and collection not in ("", ANY):
        raise InvalidParameter(
            f"please specify database name for the collection level privilege: {privilege}"
        )


def with_grant(policy: AccessPolicy, role: str, grant: Grant, granted: bool) -> AccessPolicy:
    """Grant or revoke. Granting twice, and revoking what was not granted, succeed.

    Raises `AccessConflict`.
    """
    found = policy.role(role)
    others = tuple(g for g in found.grants if not g.same_as(grant))
    if granted and len(others) < len(found.grants):
        return policy
    if granted and len(others) >= GRANTS_OF_ROLE_MAX:
        raise AccessConflict(
            f"the role {role} has {len(others)} grants and may have {GRANTS_OF_ROLE_MAX}: grant on {ANY}, "
            "or use a privilege group"
        )
    changed = replace(found, grants=(*others, grant) if granted else others)
    return replace(policy, roles={**policy.roles, role: changed})


# privilege groups


def with_group(policy: AccessPolicy, name: str) -> AccessPolicy:
    """Raises `InvalidParameter` when the name is taken."""
    if name in policy.groups:
        raise InvalidParameter(f"privilege group name [{name}] is defined by users")
    if is_defined(name):
        raise InvalidParameter(
            f"privilege group name [{name}] is defined by built in privileges or privilege groups in system"
        )
    if len(policy.groups) >= PRIVILEGE_GROUPS_MAX:
        raise InvalidParameter(
            f"the number of privilege groups has reached the limit ({PRIVILEGE_GROUPS_MAX}): drop one first"
        )
    return replace(policy, groups={**policy.groups, name: PrivilegeGroup(name)})


def without_group(policy: AccessPolicy, name: str) -> AccessPolicy:
    """Dropping a group that does not exist succeeds. Raises `AccessConflict` while a role uses it."""
    for role in policy.roles.values():
        if name in policy.groups and any(grant.privilege == name for grant in role.grants):
            raise AccessConflict(
                f"privilege group [{name}] is used by role [{role.name}], Use REVOKE API to revoke it first"
            )
    return replace(policy, groups={n: group for n, group in policy.groups.items() if n != name})


def with_group_members(
    policy: AccessPolicy, name: str, privileges: tuple[str, ...], added: bool
) -> AccessPolicy:
    """Add privileges to a group, or remove them. Other groups among them stand for their members.

    All members of a group are of one level. Raises `InvalidParameter`.
    """
    group = policy.groups.get(name)
    if group is None:
        raise InvalidParameter(f"there is no privilege group name [{name}] defined in system")
    named: list[str] = []
    for privilege in privileges:
        named += _single_privileges(policy, privilege)
    if not added:
        kept = tuple(p for p in group.privileges if p not in named)
    else:
        kept = tuple(dict.fromkeys((*group.privileges, *named)))
        levels = {level_of((p,)) for p in kept}
        if len(levels) > 1:
            raise InvalidParameter(
                f"privileges of the group [{name}] must be of one level, not {' and '.join(sorted(levels))}: "
                "all privileges must be from the same level"
            )
    return replace(policy, groups={**policy.groups, name: replace(group, privileges=kept)})


def _single_privileges(policy: AccessPolicy, name: str) -> list[str]:
    if name in GROUPS:
        return sorted(GROUPS[name])
    if name in policy.groups:
        return list(policy.groups[name].privileges)
    if is_defined(name):
        return [name]
    raise InvalidParameter(
        f"there is no privilege name or privilege group name [{name}] defined in system to operate"
    )
