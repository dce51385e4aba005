"""Messages of query channels: a version of 50,000 segments, and an answer that names them, fit in one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from elanus.api.query_channel import (
    PAYLOAD_MAX_BYTES,
    DqRequest,
    DqResult,
    SealedSegmentsChangeInfo,
    decode_message,
    decode_result,
    encode_message,
    encode_result,
)
from elanus.core.errors import Internal
from elanus.core.ids import CollectionID, NodeID, SegmentID
from elanus.core.timestamps import compose

NATS_MAX_BYTES = 1_000_000
SEGMENTS = 50_000
chance = random.Random(5)


def ids(count: int) -> list[SegmentID]:
    """As rootcoord allocates them, with those of other things in between."""
    found, following = [], 440_000_000_000_000_000
    for _ in range(count):
        following += chance.randint(1, 20)
        found.append(SegmentID(following))
    return found


def change(count: int) -> SealedSegmentsChangeInfo:
    """All of them were imported, at several moments, and compacted from others."""
    segments, nodes = ids(count), [NodeID(chance.randint(10_000, 90_000)) for _ in range(8)]
    moments = [compose(1_700_000_000_000 + chance.randint(0, 10**9)) for _ in range(100)]
    return SealedSegmentsChangeInfo(
        CollectionID(4000),
        123_456_789,
        {s: chance.choice(nodes) for s in segments},
        {},
        {f"by-dev-rootcoord-dml_{n}_4000v{n}": chance.choice(nodes) for n in range(16)},
        tuple(ids(count // 10)),
        {s: chance.choice(moments) for s in segments},
    )


def result(count: int) -> DqResult:
    segments = tuple(ids(count))
    return DqResult(5, NodeID(7), 9, ("v0",), segments, segments, 0)


@pytest.mark.parametrize("count", [0, 10, SEGMENTS])
def test_what_names_many_segments_fits_into_a_message(count: int) -> None:
    for made, encode, decode in (
        (change(count), encode_message, decode_message),
        (result(count), encode_result, decode_result),
    ):
        encoded = encode(made)  # type: ignore[operator]
        assert len(encoded) < NATS_MAX_BYTES * 0.9
        assert decode(encoded) == made  # type: ignore[operator]


def test_a_read_is_found_again_however_large() -> None:
    for size_bytes in (10, 3 * PAYLOAD_MAX_BYTES):
        request = DqRequest(1, NodeID(2), "results", CollectionID(3), 1.0, b"x" * size_bytes)
        assert decode_message(encode_message(request)) == request


@pytest.mark.parametrize("decode", [decode_message, decode_result])
def test_a_compressed_message_that_is_damaged_is_refused(decode: Callable[[bytes], object]) -> None:
    encoded = encode_message(change(SEGMENTS))
    assert encoded[:1] == b"Z"
    with pytest.raises(Internal):
        decode(encoded[:1000])
