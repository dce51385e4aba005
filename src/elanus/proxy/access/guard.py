"""The guard: who may do what, by the grants that are in force now.

It decides by the objects that a request means, not by what it calls them: an alias stands for its collection,
and the database is the request's own, else the connection's. A privilege on the name of an alias gives
nothing, or a user who may move the alias could give away what it then points to. A server without users
allows everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from elanus.core.access import AccessPolicy
from elanus.core.errors import CollectionNotFound, DatabaseNotFound, PermissionDenied, Unauthenticated
from elanus.core.key_rights import KeyRights
from elanus.core.privileges import ANY, PREFIX, Deny, Rights, decide
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType

_ABOUT_ROLES = "PrivilegeSelectOwnership"
"""The names of a global operation with this privilege are those of roles."""
RealName = Callable[[str, str], str]
"""Returns the name of the collection that a name or an alias in a database refers to.

Raises `CollectionNotFound`, `DatabaseNotFound`."""


class Guard(Protocol):
    """Decides which calls are allowed."""

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        """Return if the caller holds the privilege on all the objects; otherwise raise an `ElanusError`.

        Called for every call, before anything is done, in the thread that answers it. ``privilege``:
        `NO_PRIVILEGE` means that any caller known to the guard is allowed. ``object_names``: names in
        ``database``; empty if the request names none, which requires the privilege on all objects.
        """
        ...


class AllowAll:
    """A `Guard` that allows every call: the server has no users."""

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        return


class Visibility(Protocol):
    """The part of a list that a caller sees. Lists leave out the rest instead of failing."""

    def databases(self, caller: Caller, names: Iterable[str]) -> list[str]:
        """Return those names of databases in which the caller holds anything."""
        ...

    def collections(self, caller: Caller, database: str, names: Iterable[str]) -> list[str]:
        """Return those names of collections on which the caller holds anything.

        The privileges of the role public, which everybody holds, do not count.
        """
        ...


class SeesAll:
    """A `Visibility` without users."""

    def databases(self, caller: Caller, names: Iterable[str]) -> list[str]:
        return list(names)

    def collections(self, caller: Caller, database: str, names: Iterable[str]) -> list[str]:
        return list(names)


class AccessGuard:
    """Implements `Guard` and `Visibility`. Safe to call from any thread."""

    def __init__(self, policy: Callable[[], AccessPolicy], real_name: RealName) -> None:
        self._policy = policy
        self._real_name = real_name
        self._known: tuple[AccessPolicy, dict[tuple[str, str], Rights]] = (AccessPolicy(), {})
        """A policy, and the rights of users and of their keys that follow from it: one value, so that no
        thread mixes two policies."""

    def allow(
        self,
        caller: Caller,
        privilege: str,
        object_type: ObjectType,
        database: str,
        object_names: tuple[str, ...],
    ) -> None:
        """Raises `PermissionDenied` with the reference's text; `Unauthenticated` for a dropped user."""
        rights = self._rights_of(caller)
        if rights.may_everything or not privilege:
            return
        needed = privilege.removeprefix(PREFIX)
        if rights.holds(needed, database, ANY):
            return
        names = object_names
        of_roles = object_type is ObjectType.GLOBAL and privilege == _ABOUT_ROLES
        if names and object_type is not ObjectType.USER and not of_roles:
            refused = self._first_without(rights, needed, database, names)
            if refused is None:
                return
            names = (refused,)
        decision = decide(rights, privilege, object_type, database, names)
        if isinstance(decision, Deny):
            raise PermissionDenied(decision.reason)

    def databases(self, caller: Caller, names: Iterable[str]) -> list[str]:
        rights = self._rights_of(caller)
        return [name for name in names if rights.sees_database(name)]

    def collections(self, caller: Caller, database: str, names: Iterable[str]) -> list[str]:
        rights = self._rights_of(caller)
        return [name for name in names if rights.sees(database, name)]

    def _first_without(self, rights: Rights, needed: str, database: str, names: Iterable[str]) -> str | None:
        """Return the first object on which the privilege is not held, None if there is none.

        Further names are not looked at: each may cost a call of the coordinator.
        """
        for name in dict.fromkeys(names):
            meant = self._meant(database, name)
            if not rights.holds(needed, database, meant):
                return meant
        return None

    def _meant(self, database: str, name: str) -> str:
        """An object that does not exist has only the name that it is called by: a collection to create."""
        if name == ANY:
            return name
        try:
            return self._real_name(database, name)
        except (CollectionNotFound, DatabaseNotFound):
            return name

    def _rights_of(self, caller: Caller) -> Rights:
        """Rights are worked out once for each policy, user and key. A race only works them out twice."""
        policy = self._policy()
        known = self._known
        if known[0] is not policy:
            known = self._known = (policy, {})
        signed_in = (caller.user, caller.key)
        rights = known[1].get(signed_in)
        if rights is None:
            rights = known[1][signed_in] = _rights(policy, *signed_in)
        return rights


def _rights(policy: AccessPolicy, name: str, key_id: str) -> Rights:
    """The rights of a user, or of its API key. Raises `Unauthenticated` when there is none any more."""
    user = policy.users.get(name)
    if user is None:
        raise Unauthenticated(
            "auth check failure, please check username and password are correct: "
            f"there is no user {name} any more"
        )
    if not key_id:
        return policy.rights(user)
    key = policy.keys.get(key_id)
    if key is None or key.user != name:
        raise Unauthenticated(
            f"auth check failure, please check api key is correct: there is no key {key_id} any more"
        )
    return KeyRights(policy, key) if key.scope.is_limited else policy.rights(user)
