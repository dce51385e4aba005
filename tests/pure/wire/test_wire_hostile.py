"""Requests that no client makes: valid ones with a few members changed at random. None meets a defect."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from fake_verbs import FakeVerbs
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from test_wire_success import PROGRAM
from wire_messages import Call, search_request

from elanus.core.errors import Internal
from elanus.proxy.wire.status import status_field
from elanus.proxy.wire.stubs import SERVICE

CHANGES_PER_CALL = 12
TEXTS = (
    "",
    "books",
    "id",
    "vector",
    "nope",
    "a b",
    "é",
    "x" * 300,
    "{}",
    "[1]",
    "-1",
    "1e400",
    "nan",
    "id > 3",
    "((",
)
INTEGERS = (0, 1, -1, 7, 100, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, 2**64 - 1)
FLOATS = (0.0, -1.5, float("nan"), float("inf"), 3e38)


@pytest.mark.parametrize("seed", range(3))
def test_no_request_meets_a_defect(call: Call, verbs: FakeVerbs, logged: list[Any], seed: int) -> None:
    rng, codes = random.Random(seed), Counter[int]()
    for name, fields in PROGRAM.items():
        kind = message_factory.GetMessageClass(SERVICE.methods_by_name[name].input_type)
        valid = search_request() if name == "Search" else kind(**fields)
        for _ in range(CHANGES_PER_CALL):
            request = kind.FromString(valid.SerializeToString())
            for _ in range(rng.choice((1, 1, 2, 3))):
                change(request, rng)
            code = status_of(name, call(name, request)).code
            assert code != Internal.code, f"{name} met {logged[-1]['error']} with {request}"
            codes[code] += 1
        if name == "GetImportState":
            valid = kind(task=next(iter(verbs.imports)))
        call(name, valid)
    assert codes[0] > 100
    assert codes.total() - codes[0] > 100, "not all of them are refused, nor accepted"


def status_of(name: str, response: Any) -> Any:
    kept_in = status_field(SERVICE.methods_by_name[name].output_type)
    return getattr(response, kept_in) if kept_in else response


def change(request: Message, rng: random.Random) -> None:
    """Change one member, of the request or of a message in it."""
    messages = list(messages_in(request))
    if not messages:
        return  # it has no members
    message = rng.choice(messages)
    used = [field for field, _ in message.ListFields()]
    field = rng.choice(used if used and rng.random() < 0.75 else list(message.DESCRIPTOR.fields))
    members = getattr(message, field.name)
    is_message = field.message_type is not None
    if rng.random() < 0.15 or (is_message and field.message_type.GetOptions().map_entry):
        message.ClearField(field.name)
    elif is_message and not field.is_repeated:
        members.SetInParent()
    elif not field.is_repeated:
        with contextlib.suppress(ValueError):  # too large for its type
            setattr(message, field.name, value_of(field, members, rng))
    elif len(members) and rng.random() < 0.5:
        del members[rng.randrange(len(members))]
    elif is_message:
        added = members.add()
        added.MergeFrom(rng.choice(list(members)))
    else:
        with contextlib.suppress(ValueError):
            members.append(value_of(field, b"", rng))


def value_of(field: FieldDescriptor, before: Any, rng: random.Random) -> object:
    """Another value of a member that is no message. Bytes differ by a little from those ``before``."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([*(value.number for value in field.enum_type.values), -1, 999])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        kept = bytes(before)[: rng.randrange(len(before) + 1)]
        return kept + rng.randbytes(rng.choice((0, 1, 9)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return rng.choice(TEXTS)
    return rng.choice(INTEGERS)


def messages_in(message: Message) -> Iterator[Message]:
    if message.DESCRIPTOR.fields:
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else (value,):
                yield from messages_in(one)
