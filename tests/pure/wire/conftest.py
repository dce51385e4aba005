"""A Milvus server around fake verbs, and plain gRPC calls to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import structlog
from fake_verbs import FakeVerbs
from google.protobuf import message_factory
from google.protobuf.message import Message
from wire_calls import calls_of
from wire_messages import Call

from elanus.proxy.wire.server import MilvusServer
from elanus.proxy.wire.stubs import SERVICE


@pytest.fixture
def verbs() -> FakeVerbs:
    return FakeVerbs()


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """The log lines, at any level."""
    quiet = structlog.get_config()
    structlog.reset_defaults()
    with structlog.testing.capture_logs() as logs:
        yield logs
    structlog.configure(**quiet)


@pytest.fixture
def answers() -> list[tuple[str, int]]:
    """The observer's notes: RPC and status code of each answer."""
    return []


@pytest.fixture
def port(verbs: FakeVerbs, answers: list[tuple[str, int]]) -> Iterator[int]:
    calls = calls_of(verbs, lambda rpc, code, _: answers.append((rpc, code)))
    server = MilvusServer(calls, "127.0.0.1", 0, max_workers=4)
    yield server.start()
    server.stop(grace_s=0)


@pytest.fixture
def call(port: int) -> Iterator[Call]:
    """``call("GetVersion", collection_name=…, database=…)``: one RPC over the wire, without a client."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

        def invoke(name: str, message: Message = None, /, database: str = "", **fields: Any) -> Message:
            method = SERVICE.methods_by_name[name]
            request_type = message_factory.GetMessageClass(method.input_type)
            response_type = message_factory.GetMessageClass(method.output_type)
            send = (channel.unary_stream if method.server_streaming else channel.unary_unary)(
                f"/{SERVICE.full_name}/{name}",
                request_serializer=request_type.SerializeToString,
                response_deserializer=response_type.FromString,
            )
            metadata = [("dbname", database)] if database else None
            return send(request_type(**fields) if message is None else message, metadata=metadata, timeout=10)

        yield invoke
