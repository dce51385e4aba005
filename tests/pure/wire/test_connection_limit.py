"""Which connections of a client port are answered."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from elanus.proxy.wire.connection_limit import ConnectionLimit, accepted_max, connected_ports


def test_peers_are_admitted_up_to_the_limit_and_others_when_some_are_gone() -> None:
    connected, now_s = {1, 2, 3}, [0.0]
    limit = ConnectionLimit(2, lambda: connected, lambda: now_s[0])
    peers = [f"ipv4:127.0.0.1:{port}" for port in (1, 2, 3)]
    assert [limit.admits(peer) for peer in peers] == [True, True, False]
    connected.discard(1)
    assert not limit.admits(peers[2]), "refusals share a look at the connections"
    now_s[0] = 2.0
    assert limit.admits(peers[2])
    assert limit.admits("ipv6:[::1]:9") is False
    assert limit.admits("unix:"), "a local socket is not limited"


def test_refusals_are_logged_once_a_minute_with_the_remedy() -> None:
    now_s = [0.0]
    limit = ConnectionLimit(1, lambda: {1}, lambda: now_s[0])
    with capture_logs() as logs:
        for number in range(1, 200):
            limit.admits(f"ipv4:127.0.0.1:{number}")
            now_s[0] += 0.5
    assert [line["refused"] for line in logs] == [1, 120]
    assert all("ulimit -n" in line["event"] and line["log_level"] == "warning" for line in logs)


def test_the_kernels_table_has_the_clients_of_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert connected_ports(port) == {client.getsockname()[1]}


def test_a_few_more_connections_are_accepted_to_be_refused() -> None:
    assert [accepted_max(n) for n in (1, 2, 80, 10_000)] == [2, 3, 90, 10_064]


SERVER = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from fake_verbs import FakeVerbs
from wire_calls import calls_of
from elanus.proxy.wire.server import MilvusServer
from elanus.server.open_files import connections_for
connections_max = connections_for(256, 1)
server = MilvusServer(calls_of(FakeVerbs()), "127.0.0.1", 0, max_workers=1, connections_max=connections_max)
print(server.start(), connections_max, flush=True)
sys.stdin.readline()
print(len([os.open(os.devnull, os.O_RDONLY) for _ in range(20)]), flush=True)
server.stop(grace_s=0)
"""


def test_a_server_with_few_open_files_refuses_a_connection_at_once_and_keeps_some_files() -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes) as server,
        ExitStack() as stack,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        port, connections_max = map(int, server.stdout.readline().split())

        def connect() -> grpc.UnaryUnaryMultiCallable:
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
            stack.callback(channel.close)
            return channel.unary_unary("/milvus.proto.milvus.MilvusService/GetVersion")

        assert connections_max == 160
        for _ in range(connections_max):
            assert connect()(b"", timeout=30)
        for _ in range(accepted_max(connections_max) - connections_max):
            with pytest.raises(grpc.RpcError) as refusal:
                connect()(b"", timeout=30)
            assert "ulimit -n" in refusal.value.details()
        with pytest.raises(grpc.RpcError) as closed:
            connect()(b"", timeout=30)
        assert closed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.communicate("end\n", timeout=30)[0].endswith("\n20\n"), "it can still open files"
