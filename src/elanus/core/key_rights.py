"""The rights of an API key that is limited: a part of its user's, never more.

A key with roles has the rights of those of them that its user still has; root and administrators, who need no
roles, may give a key any. A key with databases has rights only inside them: none on the server as a whole
(users, databases, resource groups, backups), and none that could reach into another database (renaming,
restoring). It may do everything that needs no privilege, and has the grants of the role public.
"""

from __future__ import annotations

from elanus.core.access import AccessPolicy
from elanus.core.api_keys import ApiKey, KeyScope
from elanus.core.privileges import ADMIN, COLLECTION_LEVEL, DATABASE_LEVEL, LEVELS, ROOT, Rights

IN_DATABASE = (
    LEVELS[COLLECTION_LEVEL]
    | LEVELS[DATABASE_LEVEL]
    | {"AlterCollectionSchema", "CreateSnapshot", "DropSnapshot", "DescribeSnapshot", "ListSnapshots"}
)
"""The privileges of operations that concern one database alone, which the request or the connection names."""


class KeyRights(Rights):
    """The rights of a key's user, less what the key's scope leaves out."""

    def __init__(self, policy: AccessPolicy, key: ApiKey) -> None:
        user = policy.user(key.user)
        whole = policy.rights(user)
        roles = _roles(policy, whole, key.scope)
        super().__init__(
            user.name,
            roles,
            (grant for name in roles for grant in policy.roles[name].grants),
            policy.public_grants,
            policy.group_members,
        )
        everything = ADMIN in roles or (user.name == ROOT and not key.scope.roles)
        self._databases_only = frozenset(key.scope.databases)
        self._has_all_there = everything and bool(self._databases_only)
        self.may_everything = everything and not self._databases_only
        self.concerns_itself = False

    def holds(self, privilege: str, database: str, name: str) -> bool:
        if self._databases_only and (database not in self._databases_only or privilege not in IN_DATABASE):
            return False
        return self._has_all_there or super().holds(privilege, database, name)

    def sees_database(self, database: str) -> bool:
        if self._databases_only and database not in self._databases_only:
            return False
        return self._has_all_there or super().sees_database(database)

    def sees(self, database: str, name: str) -> bool:
        if self._databases_only and database not in self._databases_only:
            return False
        return self._has_all_there or super().sees(database, name)


def _roles(policy: AccessPolicy, whole: Rights, scope: KeyScope) -> list[str]:
    """Return the roles whose rights the key has; none that was dropped, or taken from the user, since."""
    if not scope.roles:
        return sorted(whole.roles)
    return [
        name for name in scope.roles if name in policy.roles and (whole.may_everything or name in whole.roles)
    ]
