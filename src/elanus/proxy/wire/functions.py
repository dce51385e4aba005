"""A schema's function: ``FunctionSchema`` messages to `elanus.core.functions.Function` and back."""

from __future__ import annotations

from elanus.core.errors import InvalidParameter
from elanus.core.functions import Function
from elanus.core.schema import CollectionSchema
from elanus.proxy.wire.requests import add_pairs, refuse_unknown_fields, to_dict
from elanus.proxy.wire.stubs import schema_pb2

_UNDERSTOOD = frozenset(
    {
        "name",
        "id",  # those of the function and of its fields are assigned here, whatever a client sends
        "description",
        "type",
        "input_field_names",
        "input_field_ids",
        "output_field_names",
        "output_field_ids",
        "params",
    }
)
_FIRST_ID = 100


def decode_function(message: schema_pb2.FunctionSchema) -> Function:
    """Return the function, not yet checked. Raises `InvalidParameter` for an unknown type."""
    refuse_unknown_fields(message, _UNDERSTOOD, f"function {message.name}")
    if message.type not in schema_pb2.FunctionType.values():
        raise InvalidParameter(f"unknown function type {message.type} of function {message.name}")
    return Function(
        message.name,
        schema_pb2.FunctionType.Name(message.type),
        tuple(message.input_field_names),
        tuple(message.output_field_names),
        message.description,
        to_dict(message.params),
    )


def encode_function(function: Function, schema: CollectionSchema) -> schema_pb2.FunctionSchema:
    """Return the function as DescribeCollection shows it."""
    message = schema_pb2.FunctionSchema(
        name=function.name,
        id=_FIRST_ID + schema.functions.index(function),
        description=function.description,
        type=schema_pb2.FunctionType.Value(function.kind),
        input_field_names=function.inputs,
        input_field_ids=[schema.field(name).field_id for name in function.inputs],
        output_field_names=function.outputs,
        output_field_ids=[schema.field(name).field_id for name in function.outputs],
    )
    add_pairs(message.params, function.params)
    return message
