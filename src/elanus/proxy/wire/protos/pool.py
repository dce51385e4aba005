"""The descriptor pool of the Milvus protobufs, apart from the process's default one.

protobuf's default pool holds one file of a name for the whole process. Any release of pymilvus registers its
own ``milvus.proto`` there, and a second, different file of that name is a `TypeError` for whichever is
imported last. Elanus keeps its files in a pool of its own, so both can be imported, in either order.

The price: a message class of pymilvus and ours of the same name are different classes. They exchange bytes.
"""

from __future__ import annotations

from typing import cast

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import MessageOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_POOL = DescriptorPool()
# The pool needs its own copy of the file that declares the options which Milvus extends.
_POOL.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
_MESSAGE_OPTIONS = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName(MessageOptions.DESCRIPTOR.full_name)
)


def add_file(serialized: bytes) -> dict[str, object]:
    """Add a file to the pool; the names that its Python module has.

    ``serialized`` is its ``FileDescriptorProto``; the files that it imports must be in the pool. The names
    are those of modules that ``protoc`` generates: ``DESCRIPTOR``, message classes, enums and their values,
    extensions. Raises `TypeError` when a file does not fit those in the pool.
    """
    file = _POOL.AddSerializedFile(serialized)
    names: dict[str, object] = {"DESCRIPTOR": file}
    for name, enum in file.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update((value.name, value.number) for value in enum.values)
    for name, message in file.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
    for name, extension in file.extensions_by_name.items():
        names |= {name: extension, f"{name.upper()}_FIELD_NUMBER": extension.number}
    return names


def message_options(message: Descriptor) -> MessageOptions:
    """The options of a message of this pool, with the extensions that Milvus declares.

    ``message.GetOptions()`` leaves these undecoded: protobuf looks extensions up in the default pool only.
    """
    options = _MESSAGE_OPTIONS.FromString(message.GetOptions().SerializeToString())
    # the same message as in the default pool, and another class
    return cast("MessageOptions", options)
