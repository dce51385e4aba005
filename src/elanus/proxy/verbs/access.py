"""The verbs of users, roles, grants and privilege groups: checks of what is sent, hashes of passwords."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from elanus.core.access import AccessPolicy
from elanus.core.access_names import check_group_name, check_name, check_password, check_user_name
from elanus.core.api_keys import (
    ApiKey,
    KeyScope,
    check_description,
    check_scope,
    digest_of,
    expiry_ms,
    key_text,
)
from elanus.core.errors import DatabaseNotFound, InvalidParameter, NotAuthenticated
from elanus.core.privileges import ANY, Grant
from elanus.proxy.access.passwords import hash_password, is_hash
from elanus.proxy.verbs.family import VerbFamily

_KEY_ID_BYTES, _SECRET_BYTES = 8, 32


class Access(VerbFamily):
    """Implements `elanus.proxy.api.access.AccessVerbs`."""

    def access_policy(self) -> AccessPolicy:
        return self._proxy.policies.current()

    def create_user(self, name: str, password: str, description: str) -> None:
        check_user_name(name)
        hashed = hash_password(check_password(password))
        root = self._proxy.coordinators.root
        self._proxy.define("create user", lambda: root.create_user(name, hashed, description))

    def change_password(self, name: str, old: str, new: str, origin: str) -> None:
        proxy = self._proxy
        check_password(new)
        user = proxy.policies.current().users.get(name)
        if user is None or not self._passwords.is_right(user, old, origin):
            raise NotAuthenticated(f"old password not correct for {name}: not authenticated")
        hashed = hash_password(new)
        root, former = proxy.coordinators.root, user.generation
        proxy.define("change password", lambda: root.set_password(name, hashed, former))

    def describe_user(self, name: str, description: str) -> None:
        check_user_name(name)
        root = self._proxy.coordinators.root
        self._proxy.define("describe user", lambda: root.describe_user(name, description))

    def drop_user(self, name: str) -> None:
        root = self._proxy.coordinators.root
        self._proxy.define("drop user", lambda: root.drop_user(name))

    def create_api_key(
        self, user: str, valid_days: int, description: str, scope: KeyScope
    ) -> tuple[ApiKey, str]:
        check_user_name(user)
        now_ms = time.time_ns() // 1_000_000
        key_id = secrets.token_hex(_KEY_ID_BYTES)
        text = key_text(key_id, secrets.token_urlsafe(_SECRET_BYTES))
        key = ApiKey(
            key_id,
            user,
            digest_of(text),
            now_ms,
            expiry_ms(now_ms, valid_days),
            check_description(description),
            check_scope(scope),
        )
        self._check_databases(scope.databases)
        root = self._proxy.coordinators.root
        self._proxy.define("create API key", lambda: root.create_api_key(key))
        return key, text

    def _check_databases(self, names: Sequence[str]) -> None:
        """Raises `DatabaseNotFound`."""
        if not names:
            return
        root = self._proxy.coordinators.root
        known = {database.name for database in self._proxy.define("list databases", root.list_databases)}
        for name in names:
            if name not in known:
                raise DatabaseNotFound(f"database not found[database={name}]")

    def drop_api_key(self, user: str, key_id: str) -> None:
        root = self._proxy.coordinators.root
        self._proxy.define("drop API key", lambda: root.drop_api_key(user, key_id))

    def create_role(self, name: str, description: str) -> None:
        check_name(name, "role name")
        root = self._proxy.coordinators.root
        self._proxy.define("create role", lambda: root.create_role(name, description))

    def describe_role(self, name: str, description: str) -> None:
        check_name(name, "role name")
        root = self._proxy.coordinators.root
        self._proxy.define("describe role", lambda: root.describe_role(name, description))

    def drop_role(self, name: str, force: bool) -> None:
        check_name(name, "role name")
        root = self._proxy.coordinators.root
        self._proxy.define("drop role", lambda: root.drop_role(name, force))

    def set_membership(self, user: str, role: str, member: bool) -> None:
        check_user_name(user)
        check_name(role, "role name")
        root = self._proxy.coordinators.root
        self._proxy.define("set membership", lambda: root.set_membership(user, role, member))

    def set_grant(self, role: str, grant: Grant, granted: bool, placed: bool) -> None:
        check_name(role, "role name")
        for text, kind in ((grant.object_name, "object name"), (grant.privilege, "Privilege")):
            if text != ANY:
                check_name(text, kind)
        root = self._proxy.coordinators.root
        self._proxy.define("set grant", lambda: root.set_grant(role, grant, granted, placed))

    def create_privilege_group(self, name: str) -> None:
        check_group_name(name)
        root = self._proxy.coordinators.root
        self._proxy.define("create privilege group", lambda: root.create_privilege_group(name))

    def drop_privilege_group(self, name: str) -> None:
        check_group_name(name)
        root = self._proxy.coordinators.root
        self._proxy.define("drop privilege group", lambda: root.drop_privilege_group(name))

    def change_privilege_group(self, name: str, privileges: Sequence[str], added: bool) -> None:
        check_group_name(name)
        named, root = tuple(privileges), self._proxy.coordinators.root
        self._proxy.define("change privilege group", lambda: root.change_privilege_group(name, named, added))

    def restore_access(self, added: AccessPolicy) -> None:
        for user in added.users.values():
            if user.password_hash and not is_hash(user.password_hash):
                raise InvalidParameter(
                    f"the password of the user {user.name} is no hash of argon2id or bcrypt: restore what "
                    "BackupRBAC returned"
                )
        root = self._proxy.coordinators.root
        self._proxy.define("restore users", lambda: root.restore_access(added))
