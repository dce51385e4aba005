"""Users, roles, grants and privilege groups at the root coordinator.

A change returns when every proxy has dropped what it had read of the policy
(`elanus.api.cache_invalidation`). From then on no request is answered by the former one: a revoked privilege,
a changed password and a dropped user are without effect everywhere.
"""

from __future__ import annotations

from typing import Protocol

from elanus.api.idempotency import repeatable
from elanus.core.access import AccessPolicy
from elanus.core.api_keys import ApiKey
from elanus.core.privileges import Grant


class AccessApi(Protocol):
    """Changes raise `Unavailable` when a proxy has not confirmed in time; the change is made all the same."""

    @repeatable
    async def access_policy(self) -> AccessPolicy:
        """Everything that sign-in and decisions need, as of now."""
        ...

    async def create_user(self, name: str, password_hash: str, description: str) -> None:
        """Raises `AccessConflict` when the user exists, or there are too many."""
        ...

    async def set_password(self, name: str, password_hash: str, former: int) -> None:
        """``former``: the generation of the password that the caller has verified.

        Raises `AccessConflict` when there is no such user, or the password was changed since.
        """
        ...

    async def describe_user(self, name: str, description: str) -> None:
        """Replace a user's description. Raises `AccessConflict`."""
        ...

    async def drop_user(self, name: str) -> None:
        """Dropping a user that does not exist succeeds. Raises `NotPermitted` for root."""
        ...

    async def create_api_key(self, key: ApiKey) -> None:
        """Raises `AccessConflict` when there is no such user, or it has too many keys."""
        ...

    async def drop_api_key(self, user: str, key_id: str) -> None:
        """Raises `AccessConflict` when the user has no such key."""
        ...

    async def create_role(self, name: str, description: str) -> None:
        """Raises `AccessConflict`."""
        ...

    async def describe_role(self, name: str, description: str) -> None:
        """Replace a role's description. Raises `AccessConflict`."""
        ...

    async def drop_role(self, name: str, force: bool) -> None:
        """``force``: with its grants. Raises `AccessConflict`; `NotPermitted` for a default role."""
        ...

    async def set_membership(self, user: str, role: str, member: bool) -> None:
        """Raises `AccessConflict`."""
        ...

    async def set_grant(self, role: str, grant: Grant, granted: bool, placed: bool) -> None:
        """Grant or revoke. ``placed``: the grant names a database and a collection; its object type follows
        from the privilege. Raises `AccessConflict`, `InvalidParameter`."""
        ...

    async def create_privilege_group(self, name: str) -> None: ...
    async def drop_privilege_group(self, name: str) -> None:
        """Raises `AccessConflict` while a role uses it."""
        ...

    async def change_privilege_group(self, name: str, privileges: tuple[str, ...], added: bool) -> None:
        """Add or remove members. Raises `InvalidParameter`."""
        ...

    async def restore_access(self, added: AccessPolicy) -> None:
        """Add all users, roles, groups and keys of a backup that are not there already as they were.

        A restore that breaks off may have added some of them; it is continued by the same call. Raises
        `AccessConflict`, `InvalidParameter`, with nothing added, when a part exists and is another.
        """
        ...
