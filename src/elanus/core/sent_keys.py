"""Whether a collection with automatic primary keys also takes keys that clients send.

With the property `ALLOW_INSERT_AUTO_ID` rows that are written with a key keep it, in inserts and upserts;
rows without one get an automatic key. Without the property inserts must leave the key out, and an upsert
gives a row a fresh key in place of the one that names it. Sent keys are not compared with automatic ones.

An import takes the keys of a file that has them. Its jobs know only the schema, so datacoord marks the key in
the schema that it gives them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from elanus.core.errors import InvalidParameter
from elanus.core.schema import CollectionSchema, FieldSchema

ALLOW_INSERT_AUTO_ID = "allow_insert_auto_id"


def keeps_sent_keys(properties: Mapping[str, str]) -> bool:
    """Raises `InvalidParameter` for a value that is neither true nor false."""
    text = properties.get(ALLOW_INSERT_AUTO_ID, "false")
    if text.lower() not in ("true", "false"):
        raise InvalidParameter(f"{ALLOW_INSERT_AUTO_ID} is {text!r}: give true or false")
    return text.lower() == "true"


def check_takes_sent_keys(properties: Mapping[str, str], schema: CollectionSchema) -> None:
    """Refuse the property where clients send every key anyway. Raises `InvalidParameter`."""
    if keeps_sent_keys(properties) and not schema.primary_field.auto_id:
        raise InvalidParameter(f"the value for {ALLOW_INSERT_AUTO_ID} must be false when autoID is false")


def marked(schema: CollectionSchema) -> CollectionSchema:
    """Return the schema with a mark on an automatic key that files may bring."""
    key = schema.primary_field
    if not key.auto_id:
        return schema
    taking = replace(key, params={**key.params, ALLOW_INSERT_AUTO_ID: "true"})
    return replace(schema, fields=tuple(taking if field is key else field for field in schema.fields))


def is_made(field: FieldSchema, sent: Container[str]) -> bool:
    """Whether the server makes the values of a field. ``sent``: the names of the columns that there are."""
    takes_keys = field.params.get(ALLOW_INSERT_AUTO_ID) == "true" and field.name in sent
    return field.auto_id and not takes_keys
