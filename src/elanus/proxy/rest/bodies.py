"""The JSON bodies of requests: a struct for each form, which endpoints share.

A field of a struct is called as the field of the RPC that it fills, so most endpoints need no other mapping.
In JSON it has the reference's name: ``collection_name`` is ``collectionName``.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Body(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A request body. A field that an endpoint does not have is refused, never ignored."""


class InDatabase(Body, kw_only=True):
    """``dbName``: the database, by default that of the header ``DB-Name``, or ``default``."""

    db_name: str = ""


class Empty(InDatabase, kw_only=True):
    """No fields of its own."""


class NamedDatabase(Body, kw_only=True):
    db_name: str


class DatabaseProperties(Body, kw_only=True):
    db_name: str
    properties: dict[str, Any] = {}


class DatabaseKeys(Body, kw_only=True):
    db_name: str
    delete_keys: list[str] = field(default_factory=list, name="propertyKeys")


class OfCollection(InDatabase, kw_only=True):
    collection_name: str


class MaybeOfCollection(InDatabase, kw_only=True):
    collection_name: str = ""


class Load(OfCollection, kw_only=True):
    replica_number: int = field(default=0, name="replicaNumber")
    resource_groups: list[str] = []
    load_fields: list[str] = []
    skip_load_dynamic_field: bool = False


class Estimate(MaybeOfCollection, kw_only=True):
    """``collectionName``: a collection that is there; its rows, dimension and type are taken unless they are
    given. ``fieldName``: its vector field, if it has several; ``type``: of the vector field; ``values``: of a
    sparse vector that are not zero; ``other_bytes``: of a row's other fields; ``segment_mb``: at which
    segments are sealed, 0 for the default."""

    field_name: str = ""
    rows: int = 0
    dim: int = 0
    index_type: str = "AUTOINDEX"
    type: str = ""
    metric_type: str = ""
    params: dict[str, Any] = {}
    values: float = 0.0
    other_bytes: int = 8
    replica_number: int = 1
    segment_mb: int = 0


class LoadState(OfCollection, kw_only=True):
    partition_names: list[str] = []


class Flush(InDatabase, kw_only=True):
    """One collection, or several."""

    collection_name: str = ""
    collection_names: list[str] = []


class Rename(OfCollection, kw_only=True):
    new_collection_name: str
    new_db_name: str = ""


class CollectionProperties(OfCollection, kw_only=True):
    properties: dict[str, Any] = {}


class CollectionKeys(OfCollection, kw_only=True):
    delete_keys: list[str] = field(default_factory=list, name="propertyKeys")


class Compact(OfCollection, kw_only=True):
    is_clustering: bool = False
    is_l0: bool = field(default=False, name="isL0")
    target_size: int = 0


class CompactionState(Body, kw_only=True):
    job_id: int = field(name="jobID")
    db_name: str = ""
    collection_name: str = ""


class FieldProperties(OfCollection, kw_only=True):
    field_name: str
    field_params: dict[str, Any] = {}


class FieldName(OfCollection, kw_only=True):
    field_name: str


class FieldBody(Body, kw_only=True):
    """A field of a schema. ``dataType``: such as ``Int64``. ``elementTypeParams``: such as ``{"dim": 8}``."""

    field_name: str
    data_type: str
    element_data_type: str = ""
    description: str = ""
    is_primary: bool = False
    auto_id: bool = field(default=False, name="autoID")
    auto_id_too: bool = field(default=False, name="autoId")
    auto_id_in_the_guide: bool = field(default=False, name="auto_id")
    is_partition_key: bool = False
    is_clustering_key: bool = False
    element_type_params: dict[str, Any] = {}
    nullable: bool = False
    default_value: Any = None
    multi_analyzer_param: Any = None


class StructBody(Body, kw_only=True):
    """A struct array of a schema. ``fields``: of type ``Array``, or ``ArrayOfVector`` for vectors. Those
    without a ``max_capacity`` have that of the struct array."""

    field_name: str
    fields: list[FieldBody]
    description: str = ""
    nullable: bool = False
    element_type_params: dict[str, Any] = {}


class FunctionBody(Body, kw_only=True):
    """A function of a schema, or a ranker. ``type``: such as ``BM25`` or ``Rerank``."""

    name: str
    type: str
    description: str = ""
    input_field_names: list[str] = []
    output_field_names: list[str] = []
    params: dict[str, Any] = {}


class SchemaBody(Body, kw_only=True):
    fields: list[FieldBody] = []
    functions: list[FunctionBody] = []
    struct_fields: list[StructBody] = []
    auto_id: bool = field(default=False, name="autoID")
    auto_id_too: bool = field(default=False, name="autoId")
    enable_dynamic_field: bool = False
    enable_dynamic_field_too: bool = field(default=False, name="enabledDynamicField")


class IndexBody(Body, kw_only=True):
    """``params``: those of the index; ``index_type`` may be one of them, or next to them, as some send it."""

    field_name: str
    index_name: str = ""
    metric_type: str = ""
    index_type: str = ""
    index_type_too: str = field(default="", name="index_type")
    params: dict[str, Any] = {}
    index_config: dict[str, Any] = {}


class CreateCollection(OfCollection, kw_only=True):
    """With ``dimension``: a collection with an index, loaded. With ``schema``: as it says, and loaded if
    ``indexParams`` are given. ``metric_type``: the guide's other spelling of ``metricType``;
    ``enableDynamicField``: the guide's other place of that member of ``params``."""

    dimension: int = 0
    id_type: str = "Int64"
    auto_id: bool = field(default=False, name="autoID")
    auto_id_too: bool = field(default=False, name="autoId")
    metric_type: str = ""
    metric_type_in_the_guide: str = field(default="", name="metric_type")
    primary_field_name: str = ""
    vector_field_name: str = ""
    schema: SchemaBody | None = None
    index_params: list[IndexBody] = []
    params: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    consistency_level: str = ""
    description: str = ""
    enable_dynamic_field: bool | None = None


class AddField(OfCollection, kw_only=True):
    schema: FieldBody


class AddStructField(OfCollection, kw_only=True):
    schema: StructBody


class AddFunction(OfCollection, kw_only=True):
    function: FunctionBody


class AlterFunction(OfCollection, kw_only=True):
    function_name: str
    function: FunctionBody


class DropFunction(OfCollection, kw_only=True):
    function_name: str


class AddFunctionField(OfCollection, kw_only=True):
    """``index_params``: one index, on the field that is added."""

    field: FieldBody
    function: FunctionBody
    index_params: list[IndexBody] = []


class OfPartition(OfCollection, kw_only=True):
    partition_name: str


class OfPartitions(OfCollection, kw_only=True):
    partition_names: list[str]


class CreateIndexes(OfCollection, kw_only=True):
    index_params: list[IndexBody]


class OfIndex(OfCollection, kw_only=True):
    index_name: str


class IndexProperties(OfIndex, kw_only=True):
    properties: dict[str, Any] = {}


class IndexKeys(OfIndex, kw_only=True):
    delete_keys: list[str] = field(default_factory=list, name="propertyKeys")


class OfAlias(InDatabase, kw_only=True):
    alias: str = field(name="aliasName")


class AliasOfCollection(OfCollection, kw_only=True):
    alias: str = field(name="aliasName")


class OfUser(InDatabase, kw_only=True):
    """``dbName``: no effect; the HTTP client of Node.js sends it with every call."""

    username: str = field(name="userName")


class NewUser(OfUser, kw_only=True):
    password: str
    description: str = ""


class NewPassword(OfUser, kw_only=True):
    old_password: str = field(name="password")
    new_password: str


class UserRole(OfUser, kw_only=True):
    role_name: str


class OfRole(InDatabase, kw_only=True):
    role_name: str


class DescribedRole(OfRole, kw_only=True):
    description: str = ""


class DropRole(InDatabase, kw_only=True):
    role_name: str
    force_drop: bool = False


class Grant(InDatabase, kw_only=True):
    role_name: str
    object_type: str
    object_name: str
    privilege: str


class GrantV2(InDatabase, kw_only=True):
    role_name: str
    privilege: str
    collection_name: str = ""


class OfPrivilegeGroup(InDatabase, kw_only=True):
    group_name: str = field(name="privilegeGroupName")


class PrivilegeGroup(OfPrivilegeGroup, kw_only=True):
    privileges: list[str] = []


class CloudFields(Body, kw_only=True):
    """Fields that only the managed service reads. Clients send them empty; other values are refused."""

    cluster_id: str = ""
    project_id: str = ""
    region_id: str = ""


class Import(CloudFields, kw_only=True):
    """``files``: lists of files, each below the server's directory for imports."""

    collection_name: str
    db_name: str = ""
    partition_name: str = ""
    files: list[list[str]] = []
    options: dict[str, str] = {}
    object_url: str = ""
    object_urls: list[list[str]] = []
    access_key: str = ""
    secret_key: str = ""
    token: str = ""
    volume_name: str = ""
    data_paths: list[list[str]] = []


class ImportJob(CloudFields, kw_only=True):
    job_id: int | str
    db_name: str = ""


class ImportJobs(CloudFields, kw_only=True):
    """``pageSize`` 0: all jobs."""

    collection_name: str = ""
    db_name: str = ""
    page_size: int = 0
    current_page: int = 1


class OfResourceGroup(InDatabase, kw_only=True):
    name: str


class NewResourceGroup(OfResourceGroup, kw_only=True):
    config: dict[str, Any] = {}


class AlterResourceGroups(InDatabase, kw_only=True):
    resource_groups: dict[str, dict[str, Any]] = field(name="resource_groups")


class TransferReplica(InDatabase, kw_only=True):
    source_resource_group: str = field(name="sourceRgName")
    target_resource_group: str = field(name="targetRgName")
    collection_name: str
    num_replica: int = field(name="replicaNum")


class OfSnapshot(MaybeOfCollection, kw_only=True):
    name: str = field(name="snapshotName")


class NewSnapshot(OfCollection, kw_only=True):
    name: str = field(name="snapshotName")
    description: str = ""
    compaction_protection_seconds: int = 0


class RestoreSnapshot(OfSnapshot, kw_only=True):
    target_db_name: str = ""
    target_collection_name: str = ""
    rewrite_data: bool = False


class ExportSnapshot(OfSnapshot, kw_only=True):
    target_s3_path: str = field(default="", name="targetS3Path")
    external_spec: str = ""


class RestoreExternalSnapshot(InDatabase, kw_only=True):
    target_collection_name: str
    snapshot_metadata_uri: str
    external_spec: str = ""


class SnapshotJob(InDatabase, kw_only=True):
    job_id: int | str


class PinSnapshot(OfSnapshot, kw_only=True):
    ttl_seconds: int = 0


class UnpinSnapshot(InDatabase, kw_only=True):
    pin_id: int | str


class ExternalRefresh(OfCollection, kw_only=True):
    external_source: str = ""
    external_spec: str = ""


class FileResource(Body, kw_only=True):
    name: str
    path: str = ""


class Segments(InDatabase, kw_only=True):
    segment_ids: list[int] = field(default_factory=list, name="segmentIDs")
    collection_id: int = field(default=0, name="collectionID")


class Analyze(InDatabase, kw_only=True):
    text: list[str] | str
    analyzer_params: Any = None
    with_detail: bool = False
    with_hash: bool = False
    collection_name: str = ""
    field_name: str = ""
    analyzer_names: list[str] = []
