#!/usr/bin/env python3
"""Write Milvus's .proto files from the descriptors in the installed pymilvus.

No Python package carries the .proto files themselves; pymilvus carries their compiled descriptors, which hold
everything but the comments. Run it after a new release of pymilvus was installed, then ``make protos``::

    python tools/protos/vendor.py
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from google.protobuf import unknown_fields
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message import Message

FOLDER = Path(__file__).parents[2] / "src/elanus/proxy/wire/protos"

_HEADER = """\
// Milvus's {name}, as pymilvus {version} carries it.
// Apache License 2.0, Copyright The Milvus Project Authors.
// Origin: https://github.com/milvus-io/milvus-proto
// Written from its descriptors by tools/protos/vendor.py, without the comments of the original.
"""

_SCALARS = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_UINT32: "uint32",
    FieldDescriptorProto.TYPE_SINT32: "sint32",
    FieldDescriptorProto.TYPE_SINT64: "sint64",
    FieldDescriptorProto.TYPE_FIXED32: "fixed32",
    FieldDescriptorProto.TYPE_FIXED64: "fixed64",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
}


class _Optioned(Protocol):
    """A descriptor proto: anything that has options."""

    @property
    def options(self) -> Message: ...


def main() -> None:
    from pymilvus.grpc_gen import common_pb2, feder_pb2, milvus_pb2, msg_pb2, rg_pb2, schema_pb2

    version = importlib.metadata.version("pymilvus")
    for module in (common_pb2, feder_pb2, milvus_pb2, msg_pb2, rg_pb2, schema_pb2):
        descriptor: FileDescriptor = module.DESCRIPTOR
        header = _HEADER.format(name=descriptor.name, version=version)
        (FOLDER / descriptor.name).write_text(header + proto_text(descriptor))


def proto_text(file: FileDescriptor) -> str:
    """The source of a proto3 file. Raises `ValueError` for what Milvus's files do not use."""
    proto = FileDescriptorProto.FromString(file.serialized_pb)
    if proto.syntax != "proto3" or proto.public_dependency or proto.weak_dependency:
        raise ValueError(f"{proto.name} is no plain proto3 file")
    return "\n".join(_file(proto)) + "\n"


def _file(proto: FileDescriptorProto) -> Iterator[str]:
    yield '\nsyntax = "proto3";'
    yield f"\npackage {proto.package};\n"
    yield from (f'import "{name}";' for name in proto.dependency)
    yield ""
    yield from (f"option {option};" for option in _options(proto))
    for enum in proto.enum_type:
        yield ""
        yield from _enum(enum)
    for message in proto.message_type:
        yield ""
        yield from _message(message)
    for extension in proto.extension:
        yield f"\nextend {extension.extendee} {{"
        yield f"  {_field(extension)}"
        yield "}"
    for service in proto.service:
        yield ""
        yield from _service(service)


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from (f"  {_method(method)}" for method in service.method)
    yield "}"


def _method(method: MethodDescriptorProto) -> str:
    takes = "stream " * method.client_streaming + method.input_type
    gives = "stream " * method.server_streaming + method.output_type
    options = "".join(f" option {option};" for option in _options(method))
    end = f" {{{options} }}" if options else " {}" if method.HasField("options") else ";"
    return f"rpc {method.name}({takes}) returns ({gives}){end}"


def _message(message: DescriptorProto) -> Iterator[str]:
    if message.extension or message.extension_range:
        raise ValueError(f"the message {message.name} has extensions")
    yield f"message {message.name} {{"
    yield from (f"  option {option};" for option in _options(message))
    yield from (f"  {line}" for line in _reserved(message.reserved_range, message.reserved_name, last=1))
    for enum in message.enum_type:
        yield from (f"  {line}" for line in _enum(enum))
    maps = {f".{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from (f"  {line}" for line in _message(nested))
    yield from (f"  {line}" for line in _fields(message, maps))
    yield "}"


def _fields(message: DescriptorProto, maps: dict[str, DescriptorProto]) -> Iterator[str]:
    open_oneof: int | None = None
    for field in message.field:
        oneof = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
        if oneof != open_oneof:
            if open_oneof is not None:
                yield "}"
            if oneof is not None:
                yield f"oneof {message.oneof_decl[oneof].name} {{"
            open_oneof = oneof
        entry = next((entry for name, entry in maps.items() if field.type_name.endswith(name)), None)
        yield ("" if oneof is None else "  ") + (_field(field) if entry is None else _map_field(field, entry))
    if open_oneof is not None:
        yield "}"


def _map_field(field: FieldDescriptorProto, entry: DescriptorProto) -> str:
    key, value = (_type(member) for member in entry.field)
    return f"map<{key}, {value}> {field.name} = {field.number}{_bracketed(field)};"


def _field(field: FieldDescriptorProto) -> str:
    repeated = "repeated " * (field.label == FieldDescriptorProto.LABEL_REPEATED)
    optional = "optional " * field.proto3_optional
    return f"{repeated}{optional}{_type(field)} {field.name} = {field.number}{_bracketed(field)};"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or _SCALARS[field.type]


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from (f"  option {option};" for option in _options(enum))
    yield from (f"  {line}" for line in _reserved(enum.reserved_range, enum.reserved_name, last=0))
    yield from (f"  {value.name} = {value.number}{_bracketed(value)};" for value in enum.value)
    yield "}"


class _Range(Protocol):
    start: int
    end: int


def _reserved(ranges: Iterable[_Range], names: Iterable[str], *, last: int) -> Iterator[str]:
    """``last``: how far the end of a range is behind its last number; messages and enums differ."""
    yield from (f"reserved {r.start} to {r.end - last};" for r in ranges)
    yield from (f'reserved "{name}";' for name in names)


def _bracketed(descriptor: _Optioned) -> str:
    options = list(_options(descriptor))
    return f" [{', '.join(options)}]" if options else ""


def _options(descriptor: _Optioned) -> Iterator[str]:
    """``name = value`` for each option; extensions are known once pymilvus's modules are imported."""
    for field, value in descriptor.options.ListFields():
        name = f"(.{field.full_name})" if field.is_extension else field.name
        yield f"{name} = {_value(field, value)}"
    if len(unknown_fields.UnknownFieldSet(descriptor.options)):
        raise ValueError(f"an option is not known: {descriptor}")


def _value(field: FieldDescriptor, value: object) -> str:
    if isinstance(value, Message):
        return "{ " + " ".join(f"{f.name}: {_value(f, v)}" for f, v in value.ListFields()) + " }"
    if isinstance(value, int) and field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"an option of a type that is not written: {field.full_name}")


if __name__ == "__main__":
    main()
