"""The RPCs of users, roles, grants and privilege groups.

They work whether or not clients must sign in. Clients send passwords in base64.
"""

from __future__ import annotations

import base64
from dataclasses import replace

from elanus.core.access import AccessPolicy, PrivilegeGroup, Role, User
from elanus.core.access_grants import check_object_type
from elanus.core.access_names import check_name, check_user_name
from elanus.core.errors import AccessConflict, InvalidParameter
from elanus.core.names import DEFAULT_DATABASE
from elanus.core.privileges import ANY, GLOBAL, GROUPS, ROOT, Grant
from elanus.proxy.access.caller import Caller
from elanus.proxy.access.permission import ObjectType
from elanus.proxy.api.access import AccessVerbs
from elanus.proxy.wire.requests import rpc
from elanus.proxy.wire.status import success
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2

_CREATE, _DROP = "PrivilegeCreateOwnership", "PrivilegeDropOwnership"
_SELECT, _MANAGE = "PrivilegeSelectOwnership", "PrivilegeManageOwnership"


class Access:
    def __init__(self, verbs: AccessVerbs) -> None:
        self._verbs = verbs

    # users

    @rpc(
        "username",
        "password",
        "description",
        "created_utc_timestamps",
        "modified_utc_timestamps",
        privilege=_CREATE,
    )
    def CreateCredential(
        self, request: milvus_pb2.CreateCredentialRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.create_user(request.username, _password(request.password), request.description)
        return success()

    @rpc(
        "username",
        "oldPassword",
        "newPassword",
        "description",
        "created_utc_timestamps",
        "modified_utc_timestamps",
        privilege="PrivilegeUpdateUser",
        on="username",
        object_type=ObjectType.USER,
    )
    def UpdateCredential(
        self, request: milvus_pb2.UpdateCredentialRequest, caller: Caller
    ) -> common_pb2.Status:
        """The old password is required of everybody, root included; not to change the description alone."""
        old, new = _password(request.oldPassword), _password(request.newPassword)
        if old or new or not request.HasField("description"):
            self._verbs.change_password(request.username, old, new, caller.origin)
        if request.HasField("description"):
            self._verbs.describe_user(request.username, request.description)
        return success()

    @rpc("username", privilege=_DROP)
    def DeleteCredential(
        self, request: milvus_pb2.DeleteCredentialRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.drop_user(request.username)
        return success()

    @rpc(privilege=_SELECT)
    def ListCredUsers(
        self, request: milvus_pb2.ListCredUsersRequest, caller: Caller
    ) -> milvus_pb2.ListCredUsersResponse:
        return milvus_pb2.ListCredUsersResponse(usernames=sorted(self._verbs.access_policy().users))

    @rpc(
        "user",
        "include_role_info",
        privilege="PrivilegeSelectUser",
        on="user.name",
        object_type=ObjectType.USER,
    )
    def SelectUser(
        self, request: milvus_pb2.SelectUserRequest, caller: Caller
    ) -> milvus_pb2.SelectUserResponse:
        """A user that does not exist is not found, which is no error; a name that no user can have is one."""
        policy = self._verbs.access_policy()
        is_named = request.HasField("user")
        names = [check_user_name(request.user.name)] if is_named else sorted(policy.users)
        response = milvus_pb2.SelectUserResponse()
        for user in (policy.users[name] for name in names if name in policy.users):
            result = response.results.add(user={"name": user.name}, description=user.description)
            if request.include_role_info:
                result.roles.extend(milvus_pb2.RoleEntity(name=role) for role in user.roles)
        return response

    # roles

    @rpc("entity", privilege=_CREATE)
    def CreateRole(self, request: milvus_pb2.CreateRoleRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.create_role(request.entity.name, request.entity.description)
        return success()

    @rpc("role_name", "description", privilege=_CREATE)
    def AlterRole(self, request: milvus_pb2.AlterRoleRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.describe_role(request.role_name, request.description)
        return success()

    @rpc("role_name", "force_drop", privilege=_DROP)
    def DropRole(self, request: milvus_pb2.DropRoleRequest, caller: Caller) -> common_pb2.Status:
        self._verbs.drop_role(request.role_name, request.force_drop)
        return success()

    @rpc("username", "role_name", "type", privilege=_MANAGE)
    def OperateUserRole(
        self, request: milvus_pb2.OperateUserRoleRequest, caller: Caller
    ) -> common_pb2.Status:
        member = request.type == milvus_pb2.AddUserToRole
        self._verbs.set_membership(request.username, request.role_name, member)
        return success()

    @rpc("role", "include_user_info", privilege=_SELECT)
    def SelectRole(
        self, request: milvus_pb2.SelectRoleRequest, caller: Caller
    ) -> milvus_pb2.SelectRoleResponse:
        """A role that does not exist is not found, which is no error; a name that no role can have is one."""
        policy = self._verbs.access_policy()
        is_named = request.HasField("role")
        names = [check_name(request.role.name, "role name")] if is_named else sorted(policy.roles)
        response = milvus_pb2.SelectRoleResponse()
        for role in (policy.roles[name] for name in names if name in policy.roles):
            result = response.results.add(role={"name": role.name, "description": role.description})
            if request.include_user_info:
                result.users.extend(milvus_pb2.UserEntity(name=user) for user in policy.members(role.name))
        return response

    # grants

    @rpc("entity", "type", "version", privilege=_MANAGE)
    def OperatePrivilege(
        self, request: milvus_pb2.OperatePrivilegeRequest, caller: Caller
    ) -> common_pb2.Status:
        """Grant or revoke on an object of a type."""
        entity = request.entity
        if not entity.object.name:
            raise AccessConflict("the object entity in the request is nil or invalid: name an object type")
        if not entity.object_name:
            raise AccessConflict("the object name in the grant entity is empty")
        grant = Grant(
            entity.object.name,
            entity.object_name,
            entity.db_name or caller.database or DEFAULT_DATABASE,
            entity.grantor.privilege.name,
            caller.user or ROOT,
        )
        self._operate(entity.role.name, grant, request.type, placed=False)
        return success()

    @rpc("role", "grantor", "type", "collection_name", privilege=_MANAGE)
    def OperatePrivilegeV2(
        self, request: milvus_pb2.OperatePrivilegeV2Request, caller: Caller
    ) -> common_pb2.Status:
        """Grant or revoke on a collection of a database. Without one: on all collections of the database."""
        grant = Grant(
            GLOBAL,
            request.collection_name or ANY,
            request.db_name or caller.database or DEFAULT_DATABASE,
            request.grantor.privilege.name,
            caller.user or ROOT,
        )
        self._operate(request.role.name, grant, request.type, placed=True)
        return success()

    def _operate(self, role: str, grant: Grant, kind: int, *, placed: bool) -> None:
        if not grant.privilege:
            raise AccessConflict("the privilege name in the grant entity is empty")
        self._verbs.set_grant(role, grant, kind == milvus_pb2.Grant, placed)

    @rpc("entity", privilege=_SELECT)
    def SelectGrant(
        self, request: milvus_pb2.SelectGrantRequest, caller: Caller
    ) -> milvus_pb2.SelectGrantResponse:
        entity = request.entity
        if not entity.role.name:
            raise AccessConflict("the role entity in the grant entity is invalid: name a role")
        role = self._verbs.access_policy().role(entity.role.name)
        if entity.object.name:
            check_object_type(entity.object.name)
        database = entity.db_name or caller.database or DEFAULT_DATABASE
        found = [
            grant
            for grant in role.grants
            if database in (grant.database, ANY) or grant.database == ANY
            if not entity.object.name or grant.object_type == entity.object.name
            if not entity.object_name or grant.object_name == entity.object_name
        ]
        return milvus_pb2.SelectGrantResponse(entities=[_entity(role.name, grant) for grant in found])

    # privilege groups

    @rpc("group_name", privilege="PrivilegeCreatePrivilegeGroup")
    def CreatePrivilegeGroup(
        self, request: milvus_pb2.CreatePrivilegeGroupRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.create_privilege_group(request.group_name)
        return success()

    @rpc("group_name", privilege="PrivilegeDropPrivilegeGroup")
    def DropPrivilegeGroup(
        self, request: milvus_pb2.DropPrivilegeGroupRequest, caller: Caller
    ) -> common_pb2.Status:
        self._verbs.drop_privilege_group(request.group_name)
        return success()

    @rpc("group_name", "privileges", "type", privilege="PrivilegeOperatePrivilegeGroup")
    def OperatePrivilegeGroup(
        self, request: milvus_pb2.OperatePrivilegeGroupRequest, caller: Caller
    ) -> common_pb2.Status:
        added = request.type == milvus_pb2.AddPrivilegesToGroup
        names = [privilege.name for privilege in request.privileges]
        self._verbs.change_privilege_group(request.group_name, names, added)
        return success()

    @rpc(privilege="PrivilegeListPrivilegeGroups")
    def ListPrivilegeGroups(
        self, request: milvus_pb2.ListPrivilegeGroupsRequest, caller: Caller
    ) -> milvus_pb2.ListPrivilegeGroupsResponse:
        """The built-in groups, then those that users have defined."""
        response = milvus_pb2.ListPrivilegeGroupsResponse()
        for name, members in GROUPS.items():
            response.privilege_groups.append(_group(name, sorted(members)))
        for group in self._verbs.access_policy().groups.values():
            response.privilege_groups.append(_group(group.name, group.privileges))
        return response

    # backup

    @rpc(privilege="PrivilegeBackupRBAC")
    def BackupRBAC(
        self, request: milvus_pb2.BackupRBACMetaRequest, caller: Caller
    ) -> milvus_pb2.BackupRBACMetaResponse:
        """Passwords are hashes. Root's is left out as long as it is the initial one."""
        policy = self._verbs.access_policy()
        response = milvus_pb2.BackupRBACMetaResponse()
        saved = response.RBAC_meta
        for user in policy.users.values():
            saved.users.add(
                user=user.name, password=user.password_hash, roles=[{"name": role} for role in user.roles]
            )
        for role in policy.roles.values():
            saved.roles.add(name=role.name, description=role.description)
            saved.grants.extend(_entity(role.name, grant) for grant in role.grants)
        saved.privilege_groups.extend(_group(g.name, g.privileges) for g in policy.groups.values())
        return response

    @rpc("RBAC_meta", privilege="PrivilegeRestoreRBAC")
    def RestoreRBAC(self, request: milvus_pb2.RestoreRBACMetaRequest, caller: Caller) -> common_pb2.Status:
        saved = request.RBAC_meta
        users = {u.user: User(u.user, u.password, 0, tuple(r.name for r in u.roles)) for u in saved.users}
        roles = {role.name: Role(role.name, description=role.description) for role in saved.roles}
        for entity in saved.grants:
            role = roles.get(entity.role.name)
            if role is None:
                raise InvalidParameter(
                    f"the backup has a grant of the role {entity.role.name}, but not the role: add it"
                )
            grant = Grant(
                entity.object.name,
                entity.object_name,
                entity.db_name or DEFAULT_DATABASE,
                entity.grantor.privilege.name,
                entity.grantor.user.name or ROOT,
            )
            roles[role.name] = replace(role, grants=(*role.grants, grant))
        groups = {
            g.group_name: PrivilegeGroup(g.group_name, tuple(p.name for p in g.privileges))
            for g in saved.privilege_groups
        }
        self._verbs.restore_access(AccessPolicy(users, roles, groups))
        return success()


def _password(sent: str) -> str:
    """Raises `InvalidParameter`, which does not show what was sent."""
    try:
        return base64.b64decode(sent, validate=True).decode()
    except ValueError:  # of base64, of text that is not ASCII, and of UTF-8
        raise InvalidParameter("decode password fail: send it in base64, as Milvus clients do") from None


def _entity(role: str, grant: Grant) -> milvus_pb2.GrantEntity:
    return milvus_pb2.GrantEntity(
        role=milvus_pb2.RoleEntity(name=role),
        object=milvus_pb2.ObjectEntity(name=grant.object_type),
        object_name=grant.object_name,
        db_name=grant.database,
        grantor=milvus_pb2.GrantorEntity(
            user=milvus_pb2.UserEntity(name=grant.grantor),
            privilege=milvus_pb2.PrivilegeEntity(name=grant.privilege),
        ),
    )


def _group(name: str, privileges: list[str] | tuple[str, ...]) -> milvus_pb2.PrivilegeGroupInfo:
    return milvus_pb2.PrivilegeGroupInfo(
        group_name=name, privileges=[milvus_pb2.PrivilegeEntity(name=privilege) for privilege in privileges]
    )
