"""The endpoints of users, roles, privileges and privilege groups."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from elanus.proxy.rest import bodies
from elanus.proxy.rest.endpoint import Endpoint, Session, endpoint, rpc_endpoint
from elanus.proxy.wire.stubs import milvus_pb2


def _secret(password: str) -> str:
    """A password as clients send it."""
    return base64.b64encode(password.encode()).decode()


def create_user(session: Session, body: bodies.NewUser) -> object:
    """Create a user"""
    session.rpc("CreateCredential", body, password=_secret(body.password))
    return {}


def update_password(session: Session, body: bodies.NewPassword) -> object:
    """Change a user's password"""
    old, new = _secret(body.old_password), _secret(body.new_password)
    session.rpc("UpdateCredential", body, oldPassword=old, newPassword=new)
    return {}


def describe_user(session: Session, body: bodies.OfUser) -> object:
    """List the names of a user's roles"""
    user = milvus_pb2.UserEntity(name=body.username)
    found = session.rpc("SelectUser", user=user, include_role_info=True)
    return [role.name for result in found.results for role in result.roles]


def describe_role(session: Session, body: bodies.OfRole) -> object:
    """List the privileges of a role"""
    entity = milvus_pb2.GrantEntity(
        role=milvus_pb2.RoleEntity(name=body.role_name), db_name=body.db_name or session.caller.database
    )
    return [
        {
            "dbName": grant.db_name,
            "grantor": grant.grantor.user.name,
            "objectName": grant.object_name,
            "objectType": grant.object.name,
            "privilege": grant.grantor.privilege.name,
        }
        for grant in session.rpc("SelectGrant", entity=entity).entities
    ]


def _user_role(change: str) -> Callable[[bodies.UserRole], dict[str, Any]]:
    return lambda _: {"type": milvus_pb2.OperateUserRoleType.Value(change)}


def _role(body: bodies.DescribedRole) -> dict[str, Any]:
    return {"entity": milvus_pb2.RoleEntity(name=body.role_name, description=body.description)}


def _grant(change: str) -> Callable[[Session, bodies.Grant], object]:
    def handle(session: Session, body: bodies.Grant) -> object:
        entity = milvus_pb2.GrantEntity(
            role=milvus_pb2.RoleEntity(name=body.role_name),
            object=milvus_pb2.ObjectEntity(name=body.object_type),
            object_name=body.object_name,
            grantor=_grantor(body.privilege),
            db_name=body.db_name or session.caller.database,
        )
        kind = milvus_pb2.OperatePrivilegeType.Value(change)
        session.rpc("OperatePrivilege", entity=entity, type=kind)
        return {}

    return handle


def _grant_v2(change: str) -> Callable[[bodies.GrantV2], dict[str, Any]]:
    return lambda body: {
        "role": milvus_pb2.RoleEntity(name=body.role_name),
        "grantor": _grantor(body.privilege),
        "type": milvus_pb2.OperatePrivilegeType.Value(change),
    }


def _grantor(privilege: str) -> Any:
    return milvus_pb2.GrantorEntity(privilege=milvus_pb2.PrivilegeEntity(name=privilege))


def _groups(found: Any) -> object:
    return {
        "privilegeGroups": [
            {
                "privilegeGroupName": group.group_name,
                "privileges": ",".join(privilege.name for privilege in group.privileges),
            }
            for group in found.privilege_groups
        ]
    }


def _group_change(change: str) -> Callable[[bodies.PrivilegeGroup], dict[str, Any]]:
    return lambda body: {
        "type": milvus_pb2.OperatePrivilegeGroupType.Value(change),
        "privileges": [milvus_pb2.PrivilegeEntity(name=name) for name in body.privileges],
    }


_GRANT, _REVOKE = "Grant a role a privilege", "Revoke a role's privilege"
ENDPOINTS = (
    rpc_endpoint(
        "users/list",
        bodies.InDatabase,
        "ListCredUsers",
        "List the names of the users",
        lambda found: list(found.usernames),
    ),
    endpoint("users/describe", bodies.OfUser, describe_user, "SelectUser"),
    endpoint("users/create", bodies.NewUser, create_user, "CreateCredential"),
    endpoint("users/update_password", bodies.NewPassword, update_password, "UpdateCredential"),
    rpc_endpoint("users/drop", bodies.OfUser, "DeleteCredential", "Drop a user"),
    rpc_endpoint(
        "users/grant_role",
        bodies.UserRole,
        "OperateUserRole",
        "Give a user a role",
        fields=_user_role("AddUserToRole"),
    ),
    rpc_endpoint(
        "users/revoke_role",
        bodies.UserRole,
        "OperateUserRole",
        "Take a role from a user",
        fields=_user_role("RemoveUserFromRole"),
    ),
    rpc_endpoint(
        "roles/list",
        bodies.InDatabase,
        "SelectRole",
        "List the names of the roles",
        lambda found: [result.role.name for result in found.results],
    ),
    endpoint("roles/describe", bodies.OfRole, describe_role, "SelectGrant"),
    rpc_endpoint("roles/create", bodies.DescribedRole, "CreateRole", "Create a role", fields=_role),
    rpc_endpoint("roles/alter", bodies.DescribedRole, "AlterRole", "Change the description of a role"),
    rpc_endpoint("roles/drop", bodies.DropRole, "DropRole", "Drop a role"),
    Endpoint("roles/grant_privilege", bodies.Grant, _grant("Grant"), ("OperatePrivilege",), _GRANT),
    Endpoint("roles/revoke_privilege", bodies.Grant, _grant("Revoke"), ("OperatePrivilege",), _REVOKE),
    rpc_endpoint(
        "roles/grant_privilege_v2",
        bodies.GrantV2,
        "OperatePrivilegeV2",
        "Grant a role a privilege or a privilege group on a collection",
        fields=_grant_v2("Grant"),
    ),
    rpc_endpoint(
        "roles/revoke_privilege_v2",
        bodies.GrantV2,
        "OperatePrivilegeV2",
        "Revoke a role's privilege or privilege group on a collection",
        fields=_grant_v2("Revoke"),
    ),
    rpc_endpoint(
        "privilege_groups/create", bodies.OfPrivilegeGroup, "CreatePrivilegeGroup", "Create a privilege group"
    ),
    rpc_endpoint(
        "privilege_groups/drop", bodies.OfPrivilegeGroup, "DropPrivilegeGroup", "Drop a privilege group"
    ),
    rpc_endpoint(
        "privilege_groups/list",
        bodies.InDatabase,
        "ListPrivilegeGroups",
        "List the privilege groups and their privileges",
        _groups,
    ),
    rpc_endpoint(
        "privilege_groups/add_privileges_to_group",
        bodies.PrivilegeGroup,
        "OperatePrivilegeGroup",
        "Add privileges to a group",
        fields=_group_change("AddPrivilegesToGroup"),
    ),
    rpc_endpoint(
        "privilege_groups/remove_privileges_from_group",
        bodies.PrivilegeGroup,
        "OperatePrivilegeGroup",
        "Remove privileges from a group",
        fields=_group_change("RemovePrivilegesFromGroup"),
    ),
)
