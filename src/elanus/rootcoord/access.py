"""Users, roles, privilege groups and API keys in the metadata: one key each.

They are read when they are first needed. A system in which nobody has changed them has no keys: it has what
`elanus.core.access.first_policy` says. The rules are there too; here they are applied one at a time,
persisted, and proxies are notified before a change returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elanus.api.cache_invalidation import Invalidations, Notifications
from elanus.api.fencing import while_active
from elanus.core import access, access_grants
from elanus.core.access import AccessPolicy, PrivilegeGroup, Role, User, first_policy
from elanus.core.access_backup import restored
from elanus.core.access_portions import portions
from elanus.core.api_keys import ApiKey
from elanus.core.lease import Lease
from elanus.core.privileges import Grant, object_type_of
from elanus.meta.cancellation import uncancellable
from elanus.meta.port import Delete, MetaStore, Put
from elanus.meta.typed import get_as, list_as, put
from elanus.rootcoord.ids import IdAllocator

_PREFIX = "rootcoord/access/"
_USERS, _ROLES, _GROUPS = f"{_PREFIX}user/", f"{_PREFIX}role/", f"{_PREFIX}group/"
_KEYS = f"{_PREFIX}key/"
_VERSION = f"{_PREFIX}version"


class AccessControl:
    """Implements `elanus.api.access.AccessApi`, as a part of the root coordinator.

    ``users_max``, ``roles_max``: with root and the default roles. The other values belong to the coordinator,
    which starts and stops them.
    """

    def __init__(
        self,
        lease: Lease,
        meta: MetaStore,
        ids: IdAllocator,
        proxies: Invalidations,
        *,
        users_max: int,
        roles_max: int,
    ) -> None:
        self._lease = lease
        self._meta = meta
        self._ids = ids
        self._invalidations = proxies
        self._users_max = users_max
        self._roles_max = roles_max
        self._policy: AccessPolicy | None = None
        """As persisted; None: not read yet, or the outcome of the last change is unknown."""
        self._lock = asyncio.Lock()

    async def access_policy(self) -> AccessPolicy:
        async with while_active(self._lease), self._lock:
            return await self._read_policy()

    async def create_user(self, name: str, password_hash: str, description: str) -> None:
        user = User(name, password_hash, await self._ids.allocate(1), description=description)
        await self._change(lambda policy: access.with_user(policy, user, self._users_max))

    async def set_password(self, name: str, password_hash: str, former: int) -> None:
        generation = await self._ids.allocate(1)
        await self._change(
            lambda policy: access.with_password(policy, name, password_hash, former, generation)
        )

    async def describe_user(self, name: str, description: str) -> None:
        await self._change(lambda policy: access.with_user_description(policy, name, description))

    async def drop_user(self, name: str) -> None:
        await self._change(lambda policy: access.without_user(policy, name))

    async def create_api_key(self, key: ApiKey) -> None:
        await self._change(lambda policy: access.with_key(policy, key))

    async def drop_api_key(self, user: str, key_id: str) -> None:
        await self._change(lambda policy: access.without_key(policy, user, key_id))

    async def create_role(self, name: str, description: str) -> None:
        role = Role(name, description=description)
        await self._change(lambda policy: access.with_role(policy, role, self._roles_max))

    async def describe_role(self, name: str, description: str) -> None:
        await self._change(lambda policy: access.with_role_description(policy, name, description))

    async def drop_role(self, name: str, force: bool) -> None:
        await self._change(lambda policy: access.without_role(policy, name, force))

    async def set_membership(self, user: str, role: str, member: bool) -> None:
        await self._change(lambda policy: access.with_membership(policy, user, role, member))

    async def set_grant(self, role: str, grant: Grant, granted: bool, placed: bool) -> None:
        def change(policy: AccessPolicy) -> AccessPolicy:
            policy.role(role)
            if placed:
                access_grants.check_placed_grant(policy, grant.privilege, grant.database, grant.object_name)
                named = replace(grant, object_type=object_type_of(grant.privilege))
            else:
                access_grants.check_grant(policy, grant)
                named = grant
            return access_grants.with_grant(policy, role, named, granted)

        await self._change(change)

    async def create_privilege_group(self, name: str) -> None:
        await self._change(lambda policy: access_grants.with_group(policy, name))

    async def drop_privilege_group(self, name: str) -> None:
        await self._change(lambda policy: access_grants.without_group(policy, name))

    async def change_privilege_group(self, name: str, privileges: tuple[str, ...], added: bool) -> None:
        await self._change(lambda policy: access_grants.with_group_members(policy, name, privileges, added))

    async def restore_access(self, added: AccessPolicy) -> None:
        first = await self._ids.allocate(max(1, len(added.users)))
        users = {u.name: replace(u, generation=first + n) for n, u in enumerate(added.users.values())}
        numbered = replace(added, users=users)
        await self._change(lambda policy: restored(policy, numbered, self._users_max, self._roles_max))

    async def _change(self, change: Callable[[AccessPolicy], AccessPolicy]) -> None:
        """Persist what ``change`` makes of the policy. Returns when every proxy has dropped the former one.

        A large change is persisted in portions. One that breaks off is continued by the same change.

        A change that changes nothing may be the second try of a client, so it waits for earlier
        notifications. Raises what ``change`` raises, with nothing persisted.
        """
        async with self._lock:
            former = await self._read_policy()
            changed = change(former)
            if changed == former:
                await self._invalidations.all_confirmed()
                return
            notifications: Notifications = ()
            for portion in portions(former, changed):
                notifications += await self._begin_change(former, portion)
                former = portion
        await self._invalidations.confirmed(notifications)

    @uncancellable
    async def _begin_change(self, former: AccessPolicy, changed: AccessPolicy) -> Notifications:
        """Persisting a change and starting its notifications cannot be cancelled in between."""
        saved = former if former.version else AccessPolicy()  # the first change persists everything
        operations: list[Put | Delete] = [put(_VERSION, changed.version)]
        operations += _differences(_USERS, saved.users, changed.users)
        operations += _differences(_ROLES, saved.roles, changed.roles)
        operations += _differences(_GROUPS, saved.groups, changed.groups)
        operations += _differences(_KEYS, saved.keys, changed.keys)
        self._policy = None  # if the outcome stays unknown, it is read again
        await self._meta.txn(operations)
        self._policy = changed
        return self._invalidations.begin_access()

    async def _read_policy(self) -> AccessPolicy:
        """The lock is held: one caller reads the keys, and the others wait for it."""
        if self._policy is None:
            version = await get_as(self._meta, _VERSION, int)
            if version is None:
                self._policy = first_policy()
            else:
                self._policy = AccessPolicy(
                    {r.value.name: r.value for r in await list_as(self._meta, _USERS, User)},
                    {r.value.name: r.value for r in await list_as(self._meta, _ROLES, Role)},
                    {r.value.name: r.value for r in await list_as(self._meta, _GROUPS, PrivilegeGroup)},
                    version.value,
                    {r.value.key_id: r.value for r in await list_as(self._meta, _KEYS, ApiKey)},
                )
        return self._policy


def _differences(
    prefix: str, former: Mapping[str, Any], changed: Mapping[str, Any]
) -> Sequence[Put | Delete]:
    written = [put(prefix + name, value) for name, value in changed.items() if former.get(name) != value]
    return [*written, *(Delete(prefix + name) for name in former if name not in changed)]
