"""How many messages a request consists of, found out before it is decoded.

Two bytes of a request can be a message of its own, which takes ninety bytes once it is decoded: 62 MB of such
took 2.8 GB, and the decoder kept the interpreter's lock for more than a second. A real request has a message
for each field, and one for each row of an array field or of a struct. So the messages of large requests are
counted first, by their lengths, without looking into those that contain no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

COUNTED_MIN_BYTES = 1 << 20
"""Smaller requests are not counted: their messages take 50 MB at most."""
PARTS_MAX = 2_000_000
"""They take 180 MB and a tenth of a second. 64 MB have as many rows of 32 bytes."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class TooManyParts(Exception):
    """A request that is not decoded."""


def checked(data: bytes, kind: Descriptor) -> bytes:
    """Return the bytes of a message of this kind. Raises `TooManyParts`."""
    if len(data) > COUNTED_MIN_BYTES and has_too_many(data, kind):
        raise TooManyParts(
            f"the request has more than {PARTS_MAX} parts, such as rows of array fields: insert fewer rows "
            "at a time"
        )
    return data


def decoder(kind: Descriptor) -> Callable[[bytes], Message]:
    """Return what decodes the messages of this kind. It raises `TooManyParts`, and protobuf's error for bytes
    that are none."""
    decode: Callable[[bytes], Message] = message_factory.GetMessageClass(kind).FromString

    def decoded(data: bytes) -> Message:
        return decode(checked(data, kind))

    return decoded


class Plan:
    """Where in a message others are. ``inner``: by field number, the plan of the messages in it."""

    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner: Mapping[int, Plan] = {}


@cache
def plan_of(kind: Descriptor) -> Plan:
    """Return where in a message of this kind others are."""
    return _plan(kind, {})


def _plan(kind: Descriptor, known: dict[str, Plan]) -> Plan:
    if kind.full_name not in known:
        plan = known[kind.full_name] = Plan()
        plan.inner = {
            field.number: _plan(field.message_type, known) for field in kind.fields if field.message_type
        }
    return known[kind.full_name]


def has_too_many(data: bytes, kind: Descriptor, parts_max: int = PARTS_MAX) -> bool:
    """Whether a message has more than ``parts_max`` fields and messages, as far as others are in them.

    Bytes that are no message have not: decoding them fails.
    """
    left = parts_max
    open_ones = [(0, len(data), plan_of(kind))]
    try:
        while open_ones:
            at, end, plan = open_ones.pop()
            inner = plan.inner
            while at < end:
                left -= 1
                if left <= 0:
                    return True
                tag = data[at]
                at += 1
                if tag >= 0x80:
                    tag, at = _varint(data, at, tag)
                kind_of_value = tag & 7
                if kind_of_value == _BYTES:
                    size = data[at]
                    at += 1
                    if size >= 0x80:
                        size, at = _varint(data, at, size)
                    within = inner.get(tag >> 3)
                    if within is not None and size and within.inner:
                        if 2 <= size < 0x80 and data[at + 1] == size - 2 and _is_leaf(within, data[at]):
                            left -= 1  # a short row of an array field: one message of numbers
                        else:
                            open_ones.append((at, min(at + size, end), within))
                        if left <= 0:
                            return True
                    at += size
                elif kind_of_value == _VARINT:
                    while data[at] >= 0x80:
                        at += 1
                    at += 1
                elif kind_of_value == _FIXED64:
                    at += 8
                elif kind_of_value == _FIXED32:
                    at += 4
                else:
                    return False  # groups, which the protocol does not use
    except IndexError:
        return False
    return False


def _is_leaf(plan: Plan, tag: int) -> bool:
    """Whether this tag is of a message in which no others are."""
    within = plan.inner.get(tag >> 3)
    return within is not None and tag & 7 == _BYTES and tag < 0x80 and not within.inner


def _varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Return the number whose first byte is ``first``, and the position after it."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
