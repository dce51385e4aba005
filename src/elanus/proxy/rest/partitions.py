"""The endpoints of partitions, aliases and databases."""

from __future__ import annotations

from typing import Any

from elanus.proxy.rest import bodies
from elanus.proxy.rest.collections import row_count
from elanus.proxy.rest.endpoint import rpc_endpoint
from elanus.proxy.rest.schemas import pairs_shown


def _alias(found: Any) -> object:
    return {"aliasName": found.alias, "collectionName": found.collection, "dbName": found.db_name}


def _database(found: Any) -> object:
    return {"dbName": found.db_name, "dbID": found.dbID, "properties": pairs_shown(found.properties)}


_SET_PROPERTIES = "Set properties of a database"
ENDPOINTS = (
    rpc_endpoint(
        "partitions/list",
        bodies.OfCollection,
        "ShowPartitions",
        "List the names of a collection's partitions",
        lambda found: list(found.partition_names),
    ),
    rpc_endpoint(
        "partitions/has",
        bodies.OfPartition,
        "HasPartition",
        "Whether a partition exists",
        lambda found: {"has": found.value},
    ),
    rpc_endpoint(
        "partitions/get_stats",
        bodies.OfPartition,
        "GetPartitionStatistics",
        "The number of rows of a partition",
        row_count,
    ),
    rpc_endpoint("partitions/create", bodies.OfPartition, "CreatePartition", "Create a partition"),
    rpc_endpoint("partitions/drop", bodies.OfPartition, "DropPartition", "Drop a partition"),
    rpc_endpoint(
        "partitions/load",
        bodies.OfPartitions,
        "LoadPartitions",
        "Load partitions; returns before the load is complete",
    ),
    rpc_endpoint("partitions/release", bodies.OfPartitions, "ReleasePartitions", "Release partitions"),
    rpc_endpoint(
        "aliases/list",
        bodies.MaybeOfCollection,
        "ListAliases",
        "List the aliases of a collection, or of the database",
        lambda found: list(found.aliases),
    ),
    rpc_endpoint(
        "aliases/describe", bodies.OfAlias, "DescribeAlias", "The collection that an alias names", _alias
    ),
    rpc_endpoint("aliases/create", bodies.AliasOfCollection, "CreateAlias", "Create an alias"),
    rpc_endpoint("aliases/drop", bodies.OfAlias, "DropAlias", "Drop an alias"),
    rpc_endpoint(
        "aliases/alter", bodies.AliasOfCollection, "AlterAlias", "Let an alias name another collection"
    ),
    rpc_endpoint("databases/create", bodies.DatabaseProperties, "CreateDatabase", "Create a database"),
    rpc_endpoint("databases/drop", bodies.NamedDatabase, "DropDatabase", "Drop a database"),
    rpc_endpoint(
        "databases/list",
        bodies.Empty,
        "ListDatabases",
        "List the names of the databases",
        lambda found: list(found.db_names),
    ),
    rpc_endpoint(
        "databases/describe", bodies.NamedDatabase, "DescribeDatabase", "Describe a database", _database
    ),
    rpc_endpoint("databases/alter", bodies.DatabaseProperties, "AlterDatabase", _SET_PROPERTIES),
    rpc_endpoint("databases/alter_properties", bodies.DatabaseProperties, "AlterDatabase", _SET_PROPERTIES),
    rpc_endpoint(
        "databases/drop_properties",
        bodies.DatabaseKeys,
        "AlterDatabase",
        "Remove properties of a database",
    ),
)
