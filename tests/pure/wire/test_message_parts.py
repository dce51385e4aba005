"""The messages of a request are counted without decoding it."""

from __future__ import annotations

import random
from pathlib import Path

import grpc
import pytest
from fake_verbs import FakeVerbs
from wire_calls import calls_of

from elanus.proxy.wire import message_parts
from elanus.proxy.wire.message_parts import TooManyParts, checked, has_too_many
from elanus.proxy.wire.passing import MainProcess
from elanus.proxy.wire.server import MilvusServer
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2, schema_pb2
from elanus.rpc.serving.choice import Serving

WITHOUT_STATUS = "GetReplicateInfo"
INSERT = milvus_pb2.InsertRequest.DESCRIPTOR


def insert(rows: int) -> bytes:
    """Rows with a key, a vector, a text and an array."""
    request = milvus_pb2.InsertRequest(collection_name="c", num_rows=rows, hash_keys=range(rows))
    request.fields_data.add().scalars.long_data.data.extend(range(rows))
    vectors = request.fields_data.add().vectors
    vectors.dim = 2
    vectors.float_vector.data.extend([0.5] * 2 * rows)
    request.fields_data.add().scalars.string_data.data.extend(["text"] * rows)
    arrays = request.fields_data.add().scalars.array_data
    for row in range(rows):
        arrays.data.add().int_data.data.extend([row] * (row % 5))
    return bytes(request.SerializeToString())


def test_texts_and_numbers_do_not_count_and_rows_of_arrays_do() -> None:
    data = insert(1000)
    assert not has_too_many(data, INSERT, 2200)
    assert has_too_many(data, INSERT, 1000)


@pytest.mark.parametrize(
    "piece",
    [
        b"\x2a\x00",  # fields_data {}
        b"\x2a\x02\x1a\x00",  # fields_data {scalars {}}
        b"\x0a\x00",  # base {}
        b"\x32\x01\x00",  # hash_keys: 0
    ],
)
def test_empty_messages_count(piece: bytes) -> None:
    assert not has_too_many(piece * 100, INSERT, 500)
    assert has_too_many(piece * 1000, INSERT, 500)


def test_empty_messages_deep_inside_count() -> None:
    rows = schema_pb2.ArrayArray()
    request = milvus_pb2.InsertRequest()
    request.fields_data.add().scalars.array_data.CopyFrom(rows)
    empty = b"\x0a\x00" * 5000
    field = b"\x42" + _size(len(empty)) + empty  # array_data
    scalars = b"\x1a" + _size(len(field)) + field
    data = b"\x2a" + _size(len(scalars)) + scalars
    milvus_pb2.InsertRequest.FromString(data)
    assert has_too_many(data, INSERT, 1000)


def _size(size: int) -> bytes:
    found = b""
    while size > 0x7F:
        found, size = found + bytes([size & 0x7F | 0x80]), size >> 7
    return found + bytes([size])


def test_any_bytes_can_be_counted() -> None:
    chance, valid = random.Random(3), insert(50)
    for _ in range(500):
        data = bytearray(valid)
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        has_too_many(bytes(data[: chance.randrange(len(data))]), INSERT)
        has_too_many(chance.randbytes(300), INSERT)


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred parts are too many."""
    monkeypatch.setattr(message_parts, "COUNTED_MIN_BYTES", 1000)
    monkeypatch.setattr(message_parts, "PARTS_MAX", 100)
    monkeypatch.setattr(message_parts.has_too_many, "__defaults__", (100,))


@pytest.mark.usefixtures("few_parts")
def test_only_large_requests_are_counted() -> None:
    assert checked(b"\x2a\x00" * 500, INSERT)
    with pytest.raises(TooManyParts, match="more than 100 parts"):
        checked(b"\x2a\x00" * 501, INSERT)


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize("serving", ["loop", "grpc"])
@pytest.mark.parametrize("is_passing", [False, True], ids=["main process", "serving process"])
@pytest.mark.parametrize("rpc", ["Search", "HybridSearch", "Query"])
def test_every_process_refuses_them_in_the_same_words(
    tmp_path: Path, serving: Serving, is_passing: bool, rpc: str
) -> None:
    main = MainProcess(f"unix:{tmp_path / 'nobody.sock'}", lambda *_: None) if is_passing else None
    server = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", 0, max_workers=2, serving=serving, main=main)
    with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
        with pytest.raises(grpc.RpcError) as refusal:
            channel.unary_unary(f"/{SERVICE.full_name}/{rpc}")(b"\x0a\x00" * 40_000, timeout=60)
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refusal.value.details().startswith("the request has more than 100 parts")
    server.stop(0)
    if main is not None:
        assert main.passed_on == 0
        main.close()


def test_a_request_that_is_refused_in_any_case_is_not_decoded() -> None:
    server = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", 0, max_workers=1)
    with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
        send = channel.unary_unary(f"/{SERVICE.full_name}/{WITHOUT_STATUS}")
        with pytest.raises(grpc.RpcError, match="is not supported by this release"):
            send(b"\xff" * 100, timeout=60)
    server.stop(0)
