"""The connection to etcd: its members, one connection at a time, deadlines, and what its errors mean.

The messages and stubs are aetcd's. Its client is not used: it supports one endpoint, sets no deadline on
stream calls, and does not distinguish a lost answer from a request that never arrived. That difference
decides whether a transaction may be sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc as stubs

from elanus.core.errors import DiskFull, Internal, Unavailable
from elanus.meta.port import LeaseExpired, StoreClosed

T = TypeVar("T")

_MESSAGE_MAX_BYTES = 64 * 1024 * 1024
_OPTIONS = [
    ("grpc.max_send_message_length", _MESSAGE_MAX_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_MAX_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    # etcd accepts at most one ping every 5 s
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # A watch is silent for hours: after two pings without data gRPC would send only one a minute,
    ("grpc.http2.max_pings_without_data", 0),
    # and wait a minute for its answer, whatever the timeout above.
    ("grpc.http2.ping_timeout_ms", 5_000),
]
_ATTEMPT_S = 1.5
_PAUSE_S = 0.05
_NOT_DONE = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""The status codes with which etcd refuses a request that it has examined."""


class AnswerLost(Exception):
    """No answer arrived: the request may have been carried out, or may still be."""


class Compacted(Exception):
    """etcd has compacted the requested revision."""


class MessageTooLarge(Internal):
    """A request or its answer is larger than the connection takes. Nothing is wrong with etcd."""


class EtcdLink:
    """``timeout_s`` bounds every call, including all its attempts."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, credentials: Any = None) -> None:
        """``endpoints``: ``host:port`` of the members, in order of preference. ``credentials``: gRPC
        credentials, for an encrypted connection."""
        if not endpoints:
            raise ValueError("no etcd endpoint is given")
        self._endpoints = tuple(endpoints)
        self._timeout_s = timeout_s
        self._credentials = credentials
        self._at = 0
        self._channel: Any = None
        self._closed = False

    def deadline_s(self) -> float:
        """Return the deadline of a call that begins now, on the loop's clock."""
        return asyncio.get_running_loop().time() + self._timeout_s

    async def repeat(self, call: Callable[[Any, float], Awaitable[T]]) -> T:
        """Make an idempotent call: retry it until it is answered or its deadline has passed.

        ``call`` gets a channel and the timeout of one attempt in seconds. Raises `Unavailable`, and what
        `once` raises.
        """
        deadline_s = self.deadline_s()
        while True:
            try:
                return await self.once(call, deadline_s)
            except AnswerLost as error:
                if not self.is_time_left(deadline_s):
                    raise Unavailable(f"{error}; retry when it is back") from error
                await asyncio.sleep(_PAUSE_S)

    async def once(self, call: Callable[[Any, float], Awaitable[T]], deadline_s: float) -> T:
        """Make one attempt. Raises `AnswerLost`, and etcd's refusals as errors of this project."""
        left_s = deadline_s - asyncio.get_running_loop().time()
        channel = self.channel()
        try:
            return await call(channel, max(0.0, min(_ATTEMPT_S, left_s)))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise self._lost("its connection was closed") from error
        except grpc.aio.AioRpcError as error:
            if error.code() in _NOT_DONE:
                raise _meaning(error) from error
            await self._give_up(channel)
            raise self._lost(f"{error.code().name} {error.details() or ''}".rstrip()) from error

    def _lost(self, why: str) -> Exception:
        if self._closed:
            return StoreClosed("the metadata store is closed")
        return AnswerLost(f"etcd ({', '.join(self._endpoints)}) does not answer: {why}")

    def is_time_left(self, deadline_s: float) -> bool:
        return asyncio.get_running_loop().time() < deadline_s

    async def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    def channel(self) -> Any:
        """Return the connection in use."""
        if self._closed:
            raise StoreClosed("the metadata store is closed")
        if self._channel is None:
            endpoint = self._endpoints[self._at % len(self._endpoints)]
            self._channel = (
                grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
                if self._credentials is None
                else grpc.aio.secure_channel(endpoint, self._credentials, options=_OPTIONS)
            )
        return self._channel

    async def _give_up(self, channel: Any) -> None:
        """Try the next member. With a single member the connection is kept: gRPC reconnects by itself."""
        if len(self._endpoints) > 1 and channel is self._channel:
            self._at += 1
            self._channel = None
            # Other calls may be waiting on it: closing it ends them, and they retry with the next member.
            await channel.close()


def is_cancelled() -> bool:
    """Whether the running task is cancelled, and not just a call on its connection."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _meaning(error: Any) -> Exception:
    text = error.details() or ""
    match error.code():
        case grpc.StatusCode.NOT_FOUND if "lease" in text:
            return LeaseExpired(text)
        case grpc.StatusCode.OUT_OF_RANGE:
            return Compacted(text)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "larger than max" in text:
            return MessageTooLarge(f"a message to or from etcd is too large: {text}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "too many requests" in text:
            return Unavailable(f"etcd has more changes to make than it keeps up with ({text}); retry")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return DiskFull(
                f"etcd takes no more ({text}); compact and defragment it or raise its quota-backend-bytes, "
                "then end its alarm with `etcdctl alarm disarm`: it takes nothing before"
            )
        case _:
            return Internal(f"etcd refused a request: {error.code().name} {text}")


class Kv:
    """Calls of etcd's key-value service, each an argument of `EtcdLink.repeat` or `EtcdLink.once`."""

    @staticmethod
    def range(**request: Any) -> Callable[[Any, float], Awaitable[Any]]:
        return lambda channel, timeout_s: stubs.KVStub(channel).Range(
            rpc.RangeRequest(**request), timeout=timeout_s, wait_for_ready=True
        )

    @staticmethod
    def txn(request: Any) -> Callable[[Any, float], Awaitable[Any]]:
        return lambda channel, timeout_s: stubs.KVStub(channel).Txn(
            request, timeout=timeout_s, wait_for_ready=True
        )


class LeaseCalls:
    """Calls of etcd's lease service, likewise."""

    @staticmethod
    def grant(ttl_s: int) -> Callable[[Any, float], Awaitable[Any]]:
        return lambda channel, timeout_s: stubs.LeaseStub(channel).LeaseGrant(
            rpc.LeaseGrantRequest(TTL=ttl_s), timeout=timeout_s, wait_for_ready=True
        )

    @staticmethod
    def revoke(lease: int) -> Callable[[Any, float], Awaitable[Any]]:
        return lambda channel, timeout_s: stubs.LeaseStub(channel).LeaseRevoke(
            rpc.LeaseRevokeRequest(ID=lease), timeout=timeout_s, wait_for_ready=True
        )

    @staticmethod
    def renew(lease: int) -> Callable[[Any, float], Awaitable[Any]]:
        """Return the answer to one keep-alive. Each uses a stream of its own, because renewals are rare."""

        async def keep_alive(channel: Any, timeout_s: float) -> Any:
            stream = stubs.LeaseStub(channel).LeaseKeepAlive(timeout=timeout_s, wait_for_ready=True)
            try:
                await stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
                answer = await stream.read()
            except asyncio.InvalidStateError:
                answer = grpc.aio.EOF  # the stream broke during the write
            finally:
                stream.cancel()
            if answer is grpc.aio.EOF:
                raise AnswerLost("etcd ended a lease stream without an answer")
            return answer

        return keep_alive


def open_watch(channel: Any) -> Any:
    """Return a stream of etcd's watch service. It breaks when the member has lost its leader."""
    return stubs.WatchStub(channel).Watch(metadata=(("hasleader", "true"),))
