"""Client connections: gRPC channels with a socket each, which stay open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
from pymilvus.grpc_gen import milvus_pb2, milvus_pb2_grpc

from benchmarks.limits.figures import Look, Trickle
from benchmarks.limits.growth import Clock, Growth, one_by_one
from benchmarks.limits.server import LimitServer, serving
from elanus.server.open_files import raise_open_files_limit

_OWN_SOCKET = (("grpc.use_local_subchannel_pool", 1),)
_CALL_S = 20.0


class Connections:
    """Each connects, makes a call, and stays. At each look all of them make a call once more."""

    def __init__(self, server: LimitServer, clock: Clock, stack: ExitStack) -> None:
        self._server = server
        self._clock = clock
        self._stack = stack
        self._stubs: list[milvus_pb2_grpc.MilvusServiceStub] = []

    def grow(self, have: int, to: int, until_s: float) -> Growth:
        return one_by_one(self._add, have, to, until_s, self._clock)

    def look(self, have: int) -> Look:
        for stub in self._stubs:
            _call(stub)
        return self._server.look()

    def trickle(self, have: int) -> Trickle | None:
        return None

    def _add(self, number: int) -> None:
        channel = grpc.insecure_channel(self._server.address, options=_OWN_SOCKET)
        self._stack.callback(channel.close)
        stub = milvus_pb2_grpc.MilvusServiceStub(channel)
        _call(stub)
        self._stubs.append(stub)


def _call(stub: milvus_pb2_grpc.MilvusServiceStub) -> None:
    stub.GetVersion(milvus_pb2.GetVersionRequest(), timeout=_CALL_S)


@contextmanager
def connections(idle_s: float, clock: Clock, open_files_max: int | None = None) -> Iterator[Connections]:
    raise_open_files_limit()  # ours: the other ends of the sockets are in this process
    with serving(idle_s, open_files_max=open_files_max) as server, ExitStack() as stack:
        yield Connections(server, clock, stack)
