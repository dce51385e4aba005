"""The calls of `elanus keys`: API keys by which programs sign in.

They arrive on the port for Milvus clients, and are operations like the RPCs of the Milvus service.
"""

from __future__ import annotations

from elanus.api.keys import KeyInfo, NewKey
from elanus.core.access import AccessPolicy
from elanus.core.api_keys import UNLIMITED, ApiKey, KeyScope
from elanus.core.errors import NotPermitted
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType, requires
from elanus.proxy.api.access import AccessVerbs

_CHANGE, _SELECT = "PrivilegeUpdateUser", "PrivilegeSelectUser"


class Keys:
    """Implements `elanus.api.keys.KeysApi`, as `elanus.proxy.wire.interfaces` describes."""

    def __init__(self, verbs: AccessVerbs) -> None:
        self._verbs = verbs

    @requires(_CHANGE, on="user", object_type=ObjectType.USER)
    def create_key(
        self, caller: Caller, user: str, valid_days: int, description: str, scope: KeyScope = UNLIMITED
    ) -> NewKey:
        """A key is at most as good as its user, so nobody gets more rights by a key than all rights it has,
        and a limited key creates no others."""
        if not caller.user:
            raise NotPermitted(
                "API keys are created by users who have signed in: set proxy.authorization_enabled=true"
            )
        policy = self._verbs.access_policy()
        if _is_limited(policy, caller):
            raise NotPermitted(
                "a limited API key creates no keys: sign in with a password, or with a key without limits"
            )
        if _may_everything(policy, user) and not _may_everything(policy, caller.user):
            raise NotPermitted(
                f"the user {user} may do everything: only root and members of the role admin create its keys"
            )
        made, text = self._verbs.create_api_key(user, valid_days, description, scope)
        return NewKey(_info(made), text)

    @requires(_SELECT, on="user", object_type=ObjectType.USER)
    def list_keys(self, caller: Caller, user: str) -> tuple[KeyInfo, ...]:
        keys = self._verbs.access_policy().keys.values()
        found = [key for key in keys if user in ("", key.user)]
        return tuple(_info(key) for key in sorted(found, key=lambda key: (key.created_ms, key.key_id)))

    @requires(_CHANGE, on="user", object_type=ObjectType.USER)
    def drop_key(self, caller: Caller, user: str, key_id: str) -> None:
        self._verbs.drop_api_key(user, key_id)


def _may_everything(policy: AccessPolicy, name: str) -> bool:
    user = policy.users.get(name)
    return user is not None and policy.rights(user).may_everything


def _is_limited(policy: AccessPolicy, caller: Caller) -> bool:
    """Whether the caller signed in with a key that is limited, or that has been dropped since."""
    key = policy.keys.get(caller.key)
    return bool(caller.key) and (key is None or key.scope.is_limited)


def _info(key: ApiKey) -> KeyInfo:
    return KeyInfo(key.key_id, key.user, key.created_ms, key.expires_ms, key.description, key.scope)
