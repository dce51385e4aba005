"""The verbs of users, roles, grants and privilege groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elanus.core.access import AccessPolicy
from elanus.core.api_keys import ApiKey, KeyScope
from elanus.core.privileges import Grant


class AccessVerbs(Protocol):
    """A change returns when it is in force on every proxy; see `elanus.api.access.AccessApi`."""

    def access_policy(self) -> AccessPolicy:
        """Return who exists and may do what, as of now."""
        ...

    def create_user(self, name: str, password: str, description: str) -> None:
        """Raises `InvalidParameter` for an illegal name or password, and `AccessConflict`."""
        ...

    def change_password(self, name: str, old: str, new: str, origin: str) -> None:
        """Raises `NotAuthenticated` when ``old`` is wrong or there is no such user.

        ``origin``: the address that the call came from. Raises `Unauthenticated` after too many wrong ones.
        """
        ...

    def describe_user(self, name: str, description: str) -> None:
        """Replace a user's description. Raises `AccessConflict`."""
        ...

    def drop_user(self, name: str) -> None: ...
    def create_api_key(
        self, user: str, valid_days: int, description: str, scope: KeyScope
    ) -> tuple[ApiKey, str]:
        """Return the record of a new key, and the key itself. ``valid_days`` 0: it does not expire.

        Raises `InvalidParameter`, `AccessConflict`, and `DatabaseNotFound` for a database of the scope.
        """
        ...

    def drop_api_key(self, user: str, key_id: str) -> None: ...
    def create_role(self, name: str, description: str) -> None: ...
    def describe_role(self, name: str, description: str) -> None:
        """Replace a role's description. Raises `InvalidParameter`, `AccessConflict`."""
        ...

    def drop_role(self, name: str, force: bool) -> None: ...
    def set_membership(self, user: str, role: str, member: bool) -> None: ...
    def set_grant(self, role: str, grant: Grant, granted: bool, placed: bool) -> None:
        """Grant or revoke; see `AccessApi.set_grant`."""
        ...

    def create_privilege_group(self, name: str) -> None: ...
    def drop_privilege_group(self, name: str) -> None: ...
    def change_privilege_group(self, name: str, privileges: Sequence[str], added: bool) -> None: ...
    def restore_access(self, added: AccessPolicy) -> None:
        """Add the users, roles and groups of a backup, all or none. Passwords are hashes."""
        ...
