"""Changes of grants and of privilege groups, as functions from one `AccessPolicy` to the next."""

from __future__ import annotations

from dataclasses import replace

from elanus.core.access import AccessPolicy, PrivilegeGroup
from elanus.core.errors import AccessConflict, InvalidParameter
from elanus.core.limits import GRANTS_OF_ROLE_MAX, PRIVILEGE_GROUPS_MAX
from elanus.core.privileges import (
    ANY,
    CLUSTER_LEVEL,
    COLLECTION_LEVEL,
    DATABASE_LEVEL,
    GROUPS,
    PRIVILEGES_OF,
    Grant,
    is_defined,
    level_of,
)


def check_object_type(name: str) -> None:
    """Raises `AccessConflict`."""
    if name not in PRIVILEGES_OF:
        raise AccessConflict(
            f"not found the object type[name: {name}], supported the object types: "
            f"[{' '.join(PRIVILEGES_OF)}]: the object entity in the request is nil or invalid"
        )


def check_grant(policy: AccessPolicy, grant: Grant) -> None:
    """Check a grant that names its object type. Raises `AccessConflict`, `InvalidParameter`."""
    check_object_type(grant.object_type)
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
