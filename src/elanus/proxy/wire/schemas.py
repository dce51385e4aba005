"""A collection's schema: ``CollectionSchema`` bytes to `elanus.core.schema.CollectionSchema` and back.

A schema with dynamic fields gets its ``$meta`` field here, so that everything behind the wire sees an
ordinary JSON column. DescribeCollection hides it again: clients know it by ``enable_dynamic_field``.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from elanus.core.errors import InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.limits import COLLECTION_FIELDS_MAX, VECTOR_FIELDS_MAX
from elanus.core.schema import DYNAMIC_FIELD, SYSTEM_FIELDS, CollectionSchema, DataType, FieldSchema
from elanus.core.timestamps import physical_ms
from elanus.proxy.api import CollectionView
from elanus.proxy.wire.fields import decode_field, encode_field
from elanus.proxy.wire.names import check_collection_name
from elanus.proxy.wire.requests import add_pairs, refuse_unknown_fields
from elanus.proxy.wire.stubs import Message, milvus_pb2, schema_pb2

_UNDERSTOOD = frozenset(
    {
        "name",
        "description",
        "fields",
        "enable_dynamic_field",
        "autoID",  # says again what the primary field says
        "dbName",  # the request names the database
    }
)


def decode_schema(schema_bytes: bytes, collection: str) -> CollectionSchema:
    """The schema of a CreateCollection request, fields not numbered.

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
    if len(message.fields) > COLLECTION_FIELDS_MAX:
        raise InvalidParameter(f"maximum field's number should be limited to {COLLECTION_FIELDS_MAX}")
    _check_reserved_names([field.name for field in message.fields])
    fields = tuple(decode_field(field, collection) for field in message.fields)
    _check_fields_together(fields)
    if message.enable_dynamic_field:
        fields = (*fields, _dynamic_field())
    return CollectionSchema(
        name=collection,
        fields=fields,
        description=message.description,
        enable_dynamic=bool(message.enable_dynamic_field),
    )


def encode_schema(schema: CollectionSchema) -> Message:
    """The schema as clients see it: without ``$meta``."""
    return schema_pb2.CollectionSchema(
        name=schema.name,
        description=schema.description,
        enable_dynamic_field=schema.enable_dynamic,
        fields=[encode_field(field) for field in schema.fields if not field.is_dynamic],
    )


def describe(view: CollectionView, asked_name: str) -> Message:
    """A ``DescribeCollectionResponse``.

    ``asked_name`` is what the client called the collection, perhaps an alias: it comes back as
    ``collection_name``, while the schema carries the real name. ``update_timestamp`` is the schema's
    version to clients since 2.6: they cache the schema under it and send it with each write.
    """
    response = milvus_pb2.DescribeCollectionResponse(
        schema=encode_schema(view.schema),
        collectionID=view.collection_id,
        virtual_channel_names=view.vchannels,
        physical_channel_names=view.pchannels,
        created_timestamp=view.created,
        created_utc_timestamp=physical_ms(view.created),
        update_timestamp=view.created,
        update_timestamp_str=str(view.created),
        shards_num=len(view.vchannels),
        aliases=view.aliases,
        consistency_level=int(view.consistency_level),
        collection_name=asked_name or view.name,
        db_name=view.database,
        num_partitions=view.num_partitions,
    )
    add_pairs(response.properties, view.properties)
    return response


def _dynamic_field() -> FieldSchema:
    return FieldSchema(
        field_id=FieldID(0),
        name=DYNAMIC_FIELD,
        data_type=DataType.JSON,
        description="dynamic schema",
        is_dynamic=True,
    )


def _check_reserved_names(names: Sequence[str]) -> None:
    for name in names:
        if name in SYSTEM_FIELDS:
            raise InvalidParameter(
                f"schema contains system field: {', '.join((*SYSTEM_FIELDS, DYNAMIC_FIELD))}: "
                "invalid parameter[expected=schema don't contains system field][actual=contains]: "
                f"rename field {name}"
            )


def _check_fields_together(fields: Sequence[FieldSchema]) -> None:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidParameter(f"duplicated field name {name}")
    primary = [field.name for field in fields if field.is_primary]
    if not primary:
        raise InvalidParameter("primary key is not specified")
    if len(primary) > 1:
        raise InvalidParameter(f"there are more than one primary key, field name = {', '.join(primary)}")
    vectors = [field.name for field in fields if field.data_type.is_vector]
    if not vectors:
        raise InvalidParameter("schema does not contain vector field")
    if len(vectors) > VECTOR_FIELDS_MAX:
        raise InvalidParameter(
            f"maximum vector field's number should be limited to {VECTOR_FIELDS_MAX}: {', '.join(vectors)}"
        )
