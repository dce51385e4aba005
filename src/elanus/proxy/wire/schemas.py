"""A collection's schema: ``CollectionSchema`` bytes to `elanus.core.schema.CollectionSchema` and back.

A schema with dynamic fields gets its ``$meta`` field here, so that everything behind the wire sees an
ordinary JSON column. DescribeCollection hides it again: clients know it by ``enable_dynamic_field``.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.field_changes import check_addable
from elanus.core.functions import check_functions, with_outputs_marked
from elanus.core.moments import DEFAULT_TIMEZONE, TIMEZONE
from elanus.core.names import check_collection_name
from elanus.core.schema import CollectionSchema, FieldSchema
from elanus.core.schema_rules import (
    check_declared_names,
    check_field_count,
    check_fields_together,
    with_dynamic_field,
)
from elanus.core.structs import struct_and_name
from elanus.core.timestamps import physical_ms
from elanus.core.types import KINDS, DataType
from elanus.proxy.api.collections import CollectionView
from elanus.proxy.wire.fields import data_type_of, decode_field, encode_field
from elanus.proxy.wire.functions import decode_function, encode_function
from elanus.proxy.wire.requests import add_pairs, refuse_unknown_fields
from elanus.proxy.wire.structs import decode_struct, encode_structs
from elanus.proxy.wire.stubs import common_pb2, milvus_pb2, schema_pb2
from elanus.text import check_text_field

_UNDERSTOOD = frozenset(
    {
        "name",
        "description",
        "fields",
        "enable_dynamic_field",
        "struct_array_fields",
        "autoID",  # repeats what the primary field says
        "dbName",  # the request names the database
        "functions",
    }
)


def decode_schema(schema_bytes: bytes, collection: str, zone: str = DEFAULT_TIMEZONE) -> CollectionSchema:
    """Return the schema of a CreateCollection request; its fields have no ids yet.

    ``zone``: the time zone of default moments without an offset.

    Raises `InvalidParameter`, `InvalidDimension` or `NotSupported`, with the field and the remedy.
    """
    check_collection_name(collection)
    try:
        message = schema_pb2.CollectionSchema.FromString(schema_bytes)
    except DecodeError as error:
        raise InvalidParameter(
            f"the schema of collection {collection} is not a valid message: {error}"
        ) from error
    if message.name != collection:
        raise InvalidParameter(
            f"collection name matches schema name: collection name = {collection}, schema.Name={message.name}"
        )
    refuse_unknown_fields(message, _UNDERSTOOD, f"the schema of collection {collection}")
    check_field_count(sum(len(struct.fields) for struct in message.struct_array_fields))
    structs = [decode_struct(struct, collection) for struct in message.struct_array_fields]
    members = [field for _, of in structs for field in of]
    check_declared_names([*(field.name for field in message.fields), *(field.name for field in members)])
    fields = (*(decode_field(field, collection, zone) for field in message.fields), *members)
    check_fields_together(fields, [struct.name for struct, _ in structs])
    functions = tuple(map(decode_function, message.functions))
    check_functions(fields, functions)
    fields = with_outputs_marked(fields, functions)
    by_name = {field.name: field for field in fields}
    for field in fields:
        check_text_field(field, by_name)
    if message.enable_dynamic_field:
        fields = with_dynamic_field(fields)
    return CollectionSchema(
        name=collection,
        fields=fields,
        description=message.description,
        enable_dynamic=bool(message.enable_dynamic_field),
        structs=tuple(struct for struct, _ in structs),
        functions=functions,
    )


def decode_added_field(field_bytes: bytes, collection: str, zone: str = DEFAULT_TIMEZONE) -> FieldSchema:
    """Return the field of an AddCollectionField request. Raises as `decode_schema` does."""
    try:
        message = schema_pb2.FieldSchema.FromString(field_bytes)
    except DecodeError as error:
        raise InvalidParameter(
            f"the field to add to collection {collection} is not a valid message: {error}"
        ) from error
    return added_field(message, collection, zone)


def added_field(
    message: schema_pb2.FieldSchema, collection: str, zone: str = DEFAULT_TIMEZONE
) -> FieldSchema:
    """Return a field that is to be added. ``zone``: as for `decode_schema`. Raises as that does."""
    check_addable(message.name, is_primary=message.is_primary_key, is_partition_key=message.is_partition_key)
    check_declared_names([message.name])
    _check_added_type(message)
    field = decode_field(message, collection, zone)
    check_text_field(field, {field.name: field})
    return field


def _check_added_type(message: schema_pb2.FieldSchema) -> None:
    """Check what the reference says in other words of a further field than of those of a new collection."""
    if message.data_type == schema_pb2.DataType.Value("None"):
        raise InvalidParameter(
            "invalid parameter[expected=valid field][actual=field data type: None is not supported]: "
            f"field {message.name}"
        )
    data_type = data_type_of(message)
    if data_type is DataType.TEXT and message.HasField("default_value"):
        raise InvalidParameter(
            f"default value is not supported when adding TEXT field, field name = {message.name}"
        )
    form = KINDS[data_type].vector
    if form is not None and form.has_dim and not message.type_params:
        raise InvalidDimension(f"vector field must have dimension specified, field name = {message.name}")


def encode_schema(schema: CollectionSchema, zone: str = DEFAULT_TIMEZONE) -> schema_pb2.CollectionSchema:
    """Return the schema as clients see it: without ``$meta``."""
    return schema_pb2.CollectionSchema(
        name=schema.name,
        description=schema.description,
        enable_dynamic_field=schema.enable_dynamic,
        fields=[
            encode_field(field, zone)
            for field in schema.fields
            if not field.is_dynamic and struct_and_name(field.name) is None
        ],
        struct_array_fields=encode_structs(schema),
        functions=[encode_function(function, schema) for function in schema.functions],
    )


def describe(view: CollectionView, asked_name: str) -> milvus_pb2.DescribeCollectionResponse:
    """Return a ``DescribeCollectionResponse``.

    ``asked_name`` is the name that the client used, perhaps an alias: it is returned as ``collection_name``,
    while the schema carries the real name. Clients since 2.6 use ``update_timestamp`` as the version of the
    schema: they cache the schema under it and send it with each write.
    """
    response = milvus_pb2.DescribeCollectionResponse(
        schema=encode_schema(view.schema, view.properties.get(TIMEZONE, DEFAULT_TIMEZONE)),
        collectionID=view.collection_id,
        virtual_channel_names=view.vchannels,
        physical_channel_names=view.pchannels,
        created_timestamp=view.created,
        created_utc_timestamp=physical_ms(view.created),
        update_timestamp=view.schema_version,
        update_timestamp_str=str(view.schema_version),
        shards_num=len(view.vchannels),
        aliases=view.aliases,
        consistency_level=common_pb2.ConsistencyLevel.ValueType(view.consistency_level),
        collection_name=asked_name or view.name,
        db_name=view.database,
        db_id=view.database_id,
        num_partitions=view.num_partitions,
    )
    response.schema.version = view.schema_changes
    add_pairs(response.properties, view.properties)
    return response
