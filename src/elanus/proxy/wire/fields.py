"""A declared field: ``FieldSchema`` messages to `elanus.core.schema.FieldSchema` and back.

Decoding checks everything that can be said of one field alone: its name, its type, its type parameters,
its default value. The texts are the reference's where conformance suites look for them.
"""

from __future__ import annotations

from elanus.core.errors import InvalidDimension, InvalidParameter
from elanus.core.ids import FieldID
from elanus.core.limits import DIMENSION_MAX, DIMENSION_MIN, VARCHAR_LENGTH_MAX_BYTES
from elanus.core.schema import SUPPORTED_TYPES, DataType, FieldSchema, Scalar
from elanus.proxy.wire.names import check_field_name
from elanus.proxy.wire.requests import add_pairs, refuse_unknown_fields, to_dict
from elanus.proxy.wire.stubs import Message, schema_pb2
from elanus.proxy.wire.unsupported import unsupported

DIM = "dim"
MAX_LENGTH = "max_length"
_KEPT_PARAMS = frozenset({DIM, MAX_LENGTH, "mmap.enabled"})
_BITS_PER_BYTE = 8

_UNDERSTOOD = frozenset(
    {
        "fieldID",  # assigned by the root coordinator, whatever a client sends
        "name",
        "description",
        "data_type",
        "element_type",  # of arrays, whose data type is refused; some clients set it for every field
        "is_primary_key",
        "autoID",
        "type_params",
        "default_value",
        "nullable",
        "is_dynamic",
        "is_partition_key",
        "is_clustering_key",
        "is_function_output",
    }
)

_INSTEAD_OF_TYPE = {
    DataType.STRING: "use VarChar",
    DataType.TEXT: "use VarChar",
    DataType.ARRAY: "use JSON",
    DataType.FLOAT16_VECTOR: "use FloatVector",
    DataType.BFLOAT16_VECTOR: "use FloatVector",
    DataType.INT8_VECTOR: "use FloatVector",
}

_DEFAULT_MEMBER = {
    DataType.BOOL: "bool_data",
    DataType.INT8: "int_data",
    DataType.INT16: "int_data",
    DataType.INT32: "int_data",
    DataType.INT64: "long_data",
    DataType.FLOAT: "float_data",
    DataType.DOUBLE: "double_data",
    DataType.VARCHAR: "string_data",
}
"""The member of ``ValueField`` that carries a default of each type."""

INTEGER_RANGE = {
    DataType.INT8: (-(2**7), 2**7 - 1),
    DataType.INT16: (-(2**15), 2**15 - 1),
    DataType.INT32: (-(2**31), 2**31 - 1),
}


def decode_field(message: Message, collection: str) -> FieldSchema:
    """A field without an id. Raises `InvalidParameter`, `InvalidDimension`, `NotSupported`."""
    name = check_field_name(message.name)
    refuse_unknown_fields(message, _UNDERSTOOD, f"the schema of field {name}")
    _refuse_unbuilt_roles(message)
    data_type = _data_type(message)
    params = _type_params(message)
    primary = bool(message.is_primary_key)
    if primary and data_type not in (DataType.INT64, DataType.VARCHAR):
        raise InvalidParameter("the data type of primary key should be Int64 or VarChar")
    if message.autoID and not primary:
        raise InvalidParameter(f"only primary field can speficy AutoID with true, field name = {name}")
    _check_nullable(message, data_type)
    max_length = _max_length(params, name, collection) if data_type is DataType.VARCHAR else 0
    dim = _dim(params, name, data_type) if data_type.is_vector else 0
    own = {MAX_LENGTH} if max_length else {DIM} if dim else set()
    return FieldSchema(
        field_id=FieldID(0),
        name=name,
        data_type=data_type,
        description=message.description,
        is_primary=primary,
        auto_id=bool(message.autoID),
        dim=dim,
        max_length=max_length,
        nullable=bool(message.nullable),
        default_value=_default_value(message, data_type, max_length),
        params={key: value for key, value in params.items() if key not in own},
    )


def encode_field(field: FieldSchema) -> Message:
    """The field as DescribeCollection shows it."""
    message = schema_pb2.FieldSchema(
        fieldID=field.field_id,
        name=field.name,
        description=field.description,
        data_type=int(field.data_type),
        is_primary_key=field.is_primary,
        autoID=field.auto_id,
        nullable=field.nullable,
        is_dynamic=field.is_dynamic,
    )
    if field.dim:
        message.type_params.add(key=DIM, value=str(field.dim))
    if field.max_length:
        message.type_params.add(key=MAX_LENGTH, value=str(field.max_length))
    add_pairs(message.type_params, field.params)
    if field.default_value is not None:
        setattr(message.default_value, _DEFAULT_MEMBER[field.data_type], field.default_value)
    return message


def _refuse_unbuilt_roles(message: Message) -> None:
    if message.is_partition_key:
        raise unsupported("a partition key", "create partitions and name one in each request")
    if message.is_clustering_key:
        raise unsupported("a clustering key", "leave is_clustering_key out")
    if message.is_function_output:
        raise unsupported("a function's output field", "compute the vectors in the client")
    if message.is_dynamic:
        raise InvalidParameter(
            f"cannot explicitly set a field as a dynamic field, field name = {message.name}; "
            "set enable_dynamic_field on the schema"
        )


def _data_type(message: Message) -> DataType:
    try:
        data_type = DataType(message.data_type)
    except ValueError:
        raise InvalidParameter(
            f"data type {message.data_type} of field {message.name} is not valid"
        ) from None
    if data_type is DataType.NONE:
        raise InvalidParameter(f"data type None of field {message.name} is not valid")
    if data_type not in SUPPORTED_TYPES:
        what = f"data type {data_type.name} (field {message.name})"
        raise unsupported(what, _INSTEAD_OF_TYPE.get(data_type))
    return data_type


def _type_params(message: Message) -> dict[str, str]:
    params = to_dict(message.type_params)
    for key in params.keys() - _KEPT_PARAMS:
        raise unsupported(f"type parameter {key} (field {message.name})", "leave it out")
    return params


def _dim(params: dict[str, str], field: str, data_type: DataType) -> int:
    if DIM not in params:
        raise InvalidDimension(
            "dimension is not defined in field type params, check type param `dim` for vector field"
        )
    dim = _integer(params[DIM])
    if dim is None or dim < DIMENSION_MIN:
        raise InvalidDimension(
            f"invalid dimension: {params[DIM]}. should be in range {DIMENSION_MIN} ~ {DIMENSION_MAX}: "
            f"field {field}"
        )
    binary = data_type is DataType.BINARY_VECTOR
    dim_max = DIMENSION_MAX * _BITS_PER_BYTE if binary else DIMENSION_MAX
    if dim > dim_max:
        kind = "binary" if binary else "float"
        raise InvalidDimension(
            f"invalid dimension: {dim} of field {field}. "
            f"{kind} vector dimension should be in range {DIMENSION_MIN} ~ {dim_max}"
        )
    if binary and dim % _BITS_PER_BYTE:
        raise InvalidDimension(
            f"invalid dimension: {dim} of field {field}. should be multiple of {_BITS_PER_BYTE}."
        )
    return dim


def _max_length(params: dict[str, str], field: str, collection: str) -> int:
    if MAX_LENGTH not in params:
        raise InvalidParameter(
            f"type param(max_length) should be specified for the field({field}) of collection {collection}"
        )
    length = _integer(params[MAX_LENGTH])
    if length is None or not 1 <= length <= VARCHAR_LENGTH_MAX_BYTES:
        raise InvalidParameter(
            f"the maximum length specified for the field({field}) should be in "
            f"(0, {VARCHAR_LENGTH_MAX_BYTES}], but got {params[MAX_LENGTH]} instead"
        )
    return length


def _check_nullable(message: Message, data_type: DataType) -> None:
    if not message.nullable:
        return
    if message.is_primary_key:
        raise InvalidParameter(f"primary field not support null, field name = {message.name}")
    if data_type.is_vector:
        raise unsupported(f"a nullable vector (field {message.name})", "leave nullable out")


def _default_value(message: Message, data_type: DataType, max_length: int) -> Scalar | None:
    member = message.default_value.WhichOneof("data")
    if member is None:
        return None
    if message.is_primary_key:
        raise InvalidParameter(f"primary field not support default_value, field name = {message.name}")
    expected = _DEFAULT_MEMBER.get(data_type)
    if expected is None:
        raise InvalidParameter(f"type not support default_value, type:{data_type.name}, name:{message.name}")
    if member != expected:
        raise InvalidParameter(
            f"type ({data_type.name}) of field ({message.name}) "
            f"is not equal to the type({member}) of default_value"
        )
    value: Scalar = getattr(message.default_value, member)
    _check_default_range(message.name, data_type, value, max_length)
    return value


def _check_default_range(name: str, data_type: DataType, value: Scalar, max_length: int) -> None:
    if isinstance(value, str) and len(value.encode()) > max_length:
        length = len(value.encode())
        raise InvalidParameter(
            f"the length ({length}) of string exceeds max length ({max_length}): default of field {name}"
        )
    if data_type in INTEGER_RANGE:
        low, high = INTEGER_RANGE[data_type]
        if not low <= int(value) <= high:
            raise InvalidParameter(
                f"default value out of range: {value} out of range {low} <= value <= {high}, field {name}"
            )


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
