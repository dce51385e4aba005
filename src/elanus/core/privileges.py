"""Privileges: which exist, how they are grouped, and whether a user's grants allow an operation.

A *grant* gives a role one privilege, or a group of them, on an object in a database; ``*`` stands for every
object, or every database. A user has the grants of its roles and those of the role ``public``. Two users are
outside of this: ``root``, and the members of the role ``admin``, may do everything.

The nine built-in groups are for three levels (collection, database, cluster) with three steps each. The
levels do not cascade, as in the reference: ``DatabaseAdmin`` says nothing about the rows of the database's
collections.

Names are those of the API (``Insert``), without the word ``Privilege`` that the protos put in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ANY = "*"
"""Every object, every database; as a privilege: every privilege of the grant's object type."""
ALL = "All"
"""The privilege that contains every other one."""
ROOT = "root"
ADMIN = "admin"
PUBLIC = "public"
DEFAULT_ROLES = (ADMIN, PUBLIC)
COLLECTION, GLOBAL, USER = "Collection", "Global", "User"
PREFIX = "Privilege"

_COLLECTION_RO = (
    "Query",
    "Search",
    "IndexDetail",
    "GetFlushState",
    "GetLoadState",
    "GetLoadingProgress",
    "HasPartition",
    "ShowPartitions",
    "DescribeCollection",
    "DescribeAlias",
    "GetStatistics",
    "ListAliases",
)
_COLLECTION_RW = (
    *_COLLECTION_RO,
    "Load",
    "Release",
    "Insert",
    "Delete",
    "Upsert",
    "Import",
    "Flush",
    "Compaction",
    "LoadBalance",
    "CreateIndex",
    "DropIndex",
    "CreatePartition",
    "DropPartition",
    "AddCollectionField",
)
_COLLECTION_ADMIN = (*_COLLECTION_RW, "CreateAlias", "DropAlias")
_DATABASE_RO = ("ShowCollections", "DescribeDatabase")
_DATABASE_RW = (*_DATABASE_RO, "AlterDatabase")
_DATABASE_ADMIN = (*_DATABASE_RW, "CreateCollection", "DropCollection")
_CLUSTER_RO = (
    "ListDatabases",
    "SelectOwnership",
    "SelectUser",
    "DescribeResourceGroup",
    "ListResourceGroups",
    "ListPrivilegeGroups",
)
_CLUSTER_RW = (*_CLUSTER_RO, "FlushAll", "TransferNode", "TransferReplica", "UpdateResourceGroups")
_CLUSTER_ADMIN = (
    *_CLUSTER_RW,
    "BackupRBAC",
    "RestoreRBAC",
    "CreateDatabase",
    "DropDatabase",
    "CreateOwnership",
    "DropOwnership",
    "ManageOwnership",
    "CreateResourceGroup",
    "DropResourceGroup",
    "UpdateUser",
    "RenameCollection",
    "CreatePrivilegeGroup",
    "DropPrivilegeGroup",
    "OperatePrivilegeGroup",
)
COLLECTION_LEVEL, DATABASE_LEVEL, CLUSTER_LEVEL = "Collection", "Database", "Cluster"
LEVELS: Mapping[str, frozenset[str]] = {
    COLLECTION_LEVEL: frozenset(_COLLECTION_ADMIN),
    DATABASE_LEVEL: frozenset(_DATABASE_ADMIN),
    CLUSTER_LEVEL: frozenset(_CLUSTER_ADMIN),
}
GROUPS: Mapping[str, frozenset[str]] = {
    "CollectionReadOnly": frozenset(_COLLECTION_RO),
    "CollectionReadWrite": frozenset(_COLLECTION_RW),
    "CollectionAdmin": frozenset(_COLLECTION_ADMIN),
    "DatabaseReadOnly": frozenset(_DATABASE_RO),
    "DatabaseReadWrite": frozenset(_DATABASE_RW),
    "DatabaseAdmin": frozenset(_DATABASE_ADMIN),
    "ClusterReadOnly": frozenset(_CLUSTER_RO),
    "ClusterReadWrite": frozenset(_CLUSTER_RW),
    "ClusterAdmin": frozenset(_CLUSTER_ADMIN),
}
"""The built-in groups and their members."""
_READ_GRANTS = "SelectOwnership"
_OTHER = (
    "GetImportProgress",
    "ListImport",
    "AddFileResource",
    "RemoveFileResource",
    "ListFileResources",
    "UpdateReplicateConfiguration",
    "GetReplicateConfiguration",
    "CreateSnapshot",
    "DropSnapshot",
    "DescribeSnapshot",
    "ListSnapshots",
    "RestoreSnapshot",
    "AlterCollectionSchema",
    "RefreshExternalCollection",
    "PinSnapshotData",
    "UnpinSnapshotData",
    "RestoreExternalSnapshot",
    "ExportSnapshot",
)
"""Privileges in no group: they are granted by name."""
_ON_COLLECTIONS = frozenset(
    {*_COLLECTION_RW, "AlterCollectionSchema", "RefreshExternalCollection"}
    - {"DescribeCollection", "DescribeAlias", "ListAliases"}
)
PRIVILEGES: frozenset[str] = frozenset().union(*GROUPS.values(), _OTHER, (ALL,))
"""Every privilege that is no group."""
_ON_USERS = frozenset({"UpdateUser", "SelectUser"})
PRIVILEGES_OF: Mapping[str, frozenset[str]] = {
    COLLECTION: _ON_COLLECTIONS,
    GLOBAL: PRIVILEGES - _ON_COLLECTIONS - _ON_USERS,
    USER: _ON_USERS,
}
"""The privileges that a grant on an object type may name."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A part of what a role may do. ``privilege``: one, a group, or `ANY`. ``grantor``: who granted it."""

    object_type: str
    object_name: str
    database: str
    privilege: str
    grantor: str = ROOT

    def same_as(self, other: Grant) -> bool:
        """Whether both give the same; their grantors may differ."""
        return self.key == other.key

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.object_type, self.object_name, self.database, self.privilege


PUBLIC_GRANTS = (
    Grant(GLOBAL, ANY, ANY, "DescribeCollection"),
    Grant(GLOBAL, ANY, ANY, "ListAliases"),
    Grant(COLLECTION, ANY, ANY, "IndexDetail"),
)
"""The first grants of the role public, as in the reference: clients ask for a schema before they insert."""


def object_type_of(privilege: str) -> str:
    """Return the object type of a privilege; a group's is `GLOBAL`."""
    return next((kind for kind, privileges in PRIVILEGES_OF.items() if privilege in privileges), GLOBAL)


def level_of(privileges: Iterable[str]) -> str:
    """Return the level of the first of a group's privileges that has one; "" if none has."""
    for privilege in privileges:
        for level, members in LEVELS.items():
            if privilege in members:
                return level
    return ""


def is_defined(name: str) -> bool:
    """Whether a name is a privilege or a built-in group."""
    return name in PRIVILEGES or name in GROUPS


class Rights:
    """The grants of one user, arranged for decisions that cost the same however many there are.

    ``roles``: the user's, without `PUBLIC`. ``grants``: those of the roles. ``public``: those of the role
    `PUBLIC`. ``groups``: the members of the groups that users have defined.
    """

    def __init__(
        self,
        user: str,
        roles: Iterable[str],
        grants: Iterable[Grant],
        public: Iterable[Grant],
        groups: Mapping[str, frozenset[str]],
    ) -> None:
        self.user = user
        self.roles = frozenset(roles)
        self.may_everything = user == ROOT or ADMIN in self.roles
        self.concerns_itself = True
        """Whether it may read and change its user."""
        self._where: dict[str, set[tuple[str, str]]] = {}
        """The databases and objects on which each privilege is held."""
        self._seen: set[tuple[str, str]] = set()
        """The databases and objects on which anything is held that not everybody holds."""
        for grant in grants:
            self._add(grant, groups)
            self._seen.add((grant.database, grant.object_name))
        for grant in public:
            self._add(grant, groups)
        self._databases = {database for database, _ in self._seen}

    def _add(self, grant: Grant, groups: Mapping[str, frozenset[str]]) -> None:
        place = (grant.database, grant.object_name)
        for privilege in members_of(grant, groups):
            self._where.setdefault(privilege, set()).add(place)

    def holds(self, privilege: str, database: str, name: str) -> bool:
        """Whether the privilege is held on an object. ``name`` `ANY`: on every object of the database."""
        if self.may_everything:
            return True
        places = self._where.get(privilege)
        return places is not None and _covers(places, database, name)

    def sees_database(self, database: str) -> bool:
        """Whether anything is held in the database."""
        return self.may_everything or database in self._databases or ANY in self._databases

    def sees(self, database: str, name: str) -> bool:
        """Whether anything is held on the object, or on every object of the database."""
        return self.may_everything or _covers(self._seen, database, name)


def _covers(places: set[tuple[str, str]], database: str, name: str) -> bool:
    return (
        (database, ANY) in places
        or (ANY, ANY) in places
        or (database, name) in places
        or (ANY, name) in places
    )


def members_of(grant: Grant, groups: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the privileges that a grant gives."""
    if grant.privilege == ALL:
        return PRIVILEGES
    if grant.privilege == ANY:
        return PRIVILEGES_OF.get(grant.object_type, frozenset())
    return GROUPS.get(grant.privilege) or groups.get(grant.privilege) or frozenset({grant.privilege})


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Deny:
    """``reason``: for the client."""

    reason: str


ALLOW = Allow()


def decide(
    rights: Rights, privilege: str, object_type: str, database: str, names: tuple[str, ...]
) -> Allow | Deny:
    """Decide about one operation.

    ``privilege``: the name in the protos; "" if every user may do it. ``names``: the real names of the
    objects, not aliases; none: the operation concerns every object. A user may always read and change itself,
    and read the grants of its own roles.
    """
    if rights.may_everything or not privilege:
        return ALLOW
    if object_type == USER and names == (rights.user,) and rights.concerns_itself:
        return ALLOW
    needed = privilege.removeprefix(PREFIX)
    of_own_roles = bool(names) and rights.roles.issuperset(set(names) - {PUBLIC})
    if object_type == GLOBAL and needed == _READ_GRANTS and of_own_roles:
        return ALLOW
    if all(rights.holds(needed, database, name) for name in names or (ANY,)):
        return ALLOW
    return Deny(f"{PREFIX}{needed}: permission deny to {rights.user} in the `{database}` database")
