"""The gRPC server: its port, its message size, its end."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress

import grpc
import pytest
from fake_verbs import FakeVerbs
from structlog.testing import capture_logs
from wire_calls import calls_of
from wire_messages import Call, float_vectors, key_message, scalar_data, schema_bytes, vector_message

from elanus.core.errors import Unavailable
from elanus.core.limits import GRPC_MESSAGE_MAX_BYTES
from elanus.core.schema import DataType
from elanus.proxy.wire.message_limit import received_max_bytes
from elanus.proxy.wire.server import MilvusServer
from elanus.rpc.serving.calls import MalformedLog

DIM = 1024


def test_a_second_server_on_the_port_fails_clearly(port: int) -> None:
    second = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", port)
    with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
        second.start()
    second.stop(grace_s=0)


def test_a_stopped_server_frees_its_port() -> None:
    first = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", 0)
    port = first.start()
    first.stop(grace_s=0)
    second = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", port)
    assert second.start() == port
    second.stop(grace_s=0)


def test_requests_beyond_the_default_size_pass(call: Call, verbs: FakeVerbs) -> None:
    """gRPC's own limit is 4 MB."""
    call(
        "CreateCollection",
        collection_name="books",
        schema=schema_bytes(key_message(), vector_message(dim=DIM)),
    )
    rows = 2000
    columns = [
        scalar_data("id", DataType.INT64, range(rows)),
        float_vectors("vector", [[0.5] * DIM] * rows),
    ]
    answer = call("Insert", collection_name="books", fields_data=columns, num_rows=rows)
    assert answer.insert_cnt == rows
    assert verbs.writes[0].rows.nbytes > 4 * 1024 * 1024


def test_a_request_beyond_the_limit_is_refused_before_it_is_decoded(verbs: FakeVerbs) -> None:
    server = MilvusServer(calls_of(verbs), "127.0.0.1", 0, max_workers=1, request_max_bytes=100_000)
    with grpc.insecure_channel(f"127.0.0.1:{server.start()}") as channel:
        send = channel.unary_unary("/milvus.proto.milvus.MilvusService/GetVersion")
        for size_bytes, text in (
            (100_001, "the request has 100001 bytes, proxy.message_max_mb allows 100000: insert fewer rows"),
            (200_001, "larger than max (200001 vs. 200000)"),
        ):
            with pytest.raises(grpc.RpcError) as refusal:
                send(b"\xff" * size_bytes, timeout=10)
            assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert text in refusal.value.details()
        assert send(b"", timeout=10), "the server goes on"
    server.stop(grace_s=0)


def test_connections_beyond_the_limit_are_refused_at_once_and_the_others_go_on(verbs: FakeVerbs) -> None:
    server = MilvusServer(calls_of(verbs), "127.0.0.1", 0, max_workers=1, connections_max=2)
    address = f"127.0.0.1:{server.start()}"
    own_socket = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as stack:
        channels = [grpc.insecure_channel(address, options=own_socket) for _ in range(4)]
        for channel in channels:
            stack.callback(channel.close)
        first, second, third, fourth = (
            channel.unary_unary("/milvus.proto.milvus.MilvusService/GetVersion") for channel in channels
        )
        assert first(b"", timeout=10)
        assert second(b"", timeout=10)
        with pytest.raises(grpc.RpcError) as refusal:
            third(b"", timeout=60)
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "has 2 client connections, and may have no more" in refusal.value.details()
        assert "ulimit -n" in refusal.value.details()
        with pytest.raises(grpc.RpcError) as closed:
            fourth(b"", timeout=60)
        assert closed.value.code() is grpc.StatusCode.UNAVAILABLE, "beyond the spare one"
        assert first(b"", timeout=10), "the connected go on"
        channels[1].close()
        for _ in range(100):  # until the kernel and the limit have noticed
            with suppress(grpc.RpcError):
                assert third(b"", timeout=60)
                break
            time.sleep(0.1)
        else:
            raise AssertionError("there is room again")
    server.stop(grace_s=0)


def test_the_largest_limit_is_also_that_of_grpc() -> None:
    assert received_max_bytes(64 << 20) == 128 << 20
    assert received_max_bytes(GRPC_MESSAGE_MAX_BYTES) == GRPC_MESSAGE_MAX_BYTES


def test_malformed_bytes_are_a_grpc_error(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        send = channel.unary_unary("/milvus.proto.milvus.MilvusService/Search")
        with pytest.raises(grpc.RpcError) as refusal:
            send(b"\xff\xff\xff", timeout=10)
    assert refusal.value.code() is grpc.StatusCode.INTERNAL


def test_malformed_requests_are_logged_once_a_minute() -> None:
    """Anybody can send them, without signing in."""
    log = MalformedLog(iter((0.0, 1.0, 59.0, 60.0)).__next__)
    with capture_logs() as logged:
        for _ in range(4):
            log.note("/Search", ValueError("x" * 10_000))
    assert [(one["rpc"], one["not_logged"]) for one in logged] == [("/Search", 0), ("/Search", 2)]
    assert max(len(one["error"]) for one in logged) == 300
