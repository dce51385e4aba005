"""The gRPC carrier: every method of every role interface, with typed values and typed errors."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, get_type_hints

import grpc
import msgspec
import pytest
from role_interfaces import INTERFACES
from type_samples import sample

from elanus.api.datacoord import ChannelAssignment
from elanus.api.datanode import DataNodeApi, FlushReason
from elanus.core.errors import (
    DeadlineExceeded,
    ElanusError,
    Internal,
    Unavailable,
    all_error_types,
)
from elanus.core.ids import SegmentID
from elanus.rpc.carrier import RpcChannel, RpcServer

WHY = FlushReason("flush")


def methods(api: type[Any]) -> dict[str, dict[str, Any]]:
    return {
        name: get_type_hints(function)
        for name, function in inspect.getmembers(api, inspect.iscoroutinefunction)
    }


EVERY_METHOD = [(api, method) for api in INTERFACES for method in methods(INTERFACES[api])]


class Recorder:
    """A role that answers every method of its interface with a sample, and notes what it was asked."""

    def __init__(self, api: type[Any]) -> None:
        self.asked: list[tuple[Any, ...]] = []
        for name, hints in methods(api).items():
            setattr(self, name, self._answerer(sample(hints["return"], seed=50)))

    def _answerer(self, answer: Any) -> Callable[..., Awaitable[Any]]:
        async def answer_it(*args: Any) -> Any:
            self.asked.append(args)
            return answer

        return answer_it


@asynccontextmanager
async def served(*services: tuple[type[Any], Any]) -> AsyncIterator[RpcChannel]:
    with tempfile.TemporaryDirectory(prefix="rpc") as directory:
        server = RpcServer(f"unix:{directory}/s", services)
        await server.start()
        channel = RpcChannel(f"unix:{directory}/s")
        try:
            yield channel
        finally:
            await channel.close()
            await server.stop(0)


def test_the_interfaces_were_found() -> None:
    assert set(INTERFACES) >= {
        "RootCoordApi", "DataCoordApi", "IndexCoordApi", "QueryCoordApi",
        "DataNodeApi", "IndexNodeApi", "QueryNodeApi", "ProxyApi",
    }  # fmt: skip
    assert len(EVERY_METHOD) > 50


def test_every_method_of_every_interface_goes_there_and_back() -> None:
    async def run() -> None:
        roles = {name: Recorder(api) for name, api in INTERFACES.items()}
        async with served(*((api, roles[name]) for name, api in INTERFACES.items())) as channel:
            for api, method in EVERY_METHOD:
                hints = methods(INTERFACES[api])[method]
                result = hints.pop("return")
                sent = tuple(sample(hint, seed) for seed, hint in enumerate(hints.values(), start=1))
                answer = await getattr(channel.client(INTERFACES[api]), method)(*sent)
                assert roles[api].asked.pop() == sent, f"{api}.{method}"
                assert answer == sample(result, seed=50), f"{api}.{method}"
                assert type(answer) is type(sample(result)), f"{api}.{method}"

    asyncio.run(run())


class NodeThat(Recorder):
    """A data node whose flush does what the test says."""

    def __init__(self, flush: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(DataNodeApi)

        async def flush_segments(
            _epoch: int, _vchannel: str, _ids: tuple[SegmentID, ...], _why: FlushReason
        ) -> Any:
            return await flush()

        self.flush_segments = flush_segments


def call_fails(flush: Callable[[], Awaitable[Any]], timeout_s: float | None = 30.0) -> ElanusError:
    async def run() -> ElanusError:
        async with served((DataNodeApi, NodeThat(flush))) as channel:
            with pytest.raises(ElanusError) as caught:
                await channel.client(DataNodeApi, timeout_s).flush_segments(1, "v", (), WHY)
            return caught.value

    return asyncio.run(run())


def test_each_error_of_the_tree_crosses_as_what_it_is() -> None:
    async def run() -> None:
        kinds = iter([k for k in all_error_types().values() if k.__module__ == "elanus.core.errors"])
        raised: list[ElanusError] = []

        async def fail() -> None:
            raise raised[-1]

        async with served((DataNodeApi, NodeThat(fail))) as channel:
            node = channel.client(DataNodeApi)
            for kind in kinds:
                raised.append(kind(f"what {kind.__name__} says"))
                with pytest.raises(ElanusError) as caught:
                    await node.flush_segments(1, "v", (), WHY)
                assert type(caught.value) is kind
                assert caught.value.message == f"what {kind.__name__} says"

    asyncio.run(run())


def test_any_other_error_crosses_as_an_internal_one_that_names_it() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("of seven")

    error = call_fails(fail)
    assert type(error) is Internal
    assert error.message == "flush_segments: ZeroDivisionError: of seven"


def test_an_answer_that_cannot_travel_is_an_internal_error_of_the_peer() -> None:
    async def answer() -> object:
        return object()

    assert type(call_fails(answer)) is Internal


def test_a_call_that_takes_longer_than_its_timeout_ends_with_it() -> None:
    async def answer() -> None:
        await asyncio.Event().wait()

    error = call_fails(answer, timeout_s=0.05)
    assert type(error) is DeadlineExceeded
    assert error.message == "datanode did not answer flush_segments in time"


def test_a_peer_that_ends_during_a_call_is_unavailable() -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(prefix="rpc") as directory:
            asked = asyncio.Event()

            async def answer() -> None:
                asked.set()
                await asyncio.Event().wait()

            server = RpcServer(f"unix:{directory}/s", [(DataNodeApi, NodeThat(answer))])
            await server.start()
            channel = RpcChannel(f"unix:{directory}/s")
            call = asyncio.ensure_future(channel.client(DataNodeApi, None).flush_segments(1, "v", (), WHY))
            await asked.wait()
            await server.stop(0)
            with pytest.raises(Unavailable, match="datanode cannot be reached"):
                await call
            await channel.close()

    asyncio.run(run())


class NewerDataNodeApi(DataNodeApi, Protocol):
    """A value of a later release's peer."""

    async def polish(self, vchannel: str) -> None: ...


class OtherDataNodeApi(Protocol):
    """A release whose assignments are numbers."""

    async def watch_channels(self, epoch: int, channels: tuple[int, ...]) -> None: ...
    async def flush_segments(
        self, epoch: int, vchannel: str, segment_ids: tuple[SegmentID, ...], reason: FlushReason
    ) -> int: ...


def test_a_connection_that_is_closed_ends_its_calls_as_unavailable() -> None:
    """gRPC cancels them. Nobody has cancelled the caller, who must not look as if."""

    class Waits(Protocol):
        async def hang(self) -> int: ...

    class Hanging:
        def __init__(self) -> None:
            self.began = asyncio.Event()

        async def hang(self) -> int:
            self.began.set()
            await asyncio.Event().wait()
            return 1

    async def run() -> None:
        role = Hanging()
        async with served((Waits, role)) as channel:
            client = channel.client(Waits)
            call, given_up = asyncio.ensure_future(client.hang()), asyncio.ensure_future(client.hang())
            await role.began.wait()
            given_up.cancel()
            await asyncio.wait([given_up])
            assert given_up.cancelled(), "its own caller"
            await channel.close()
            with pytest.raises(Unavailable, match="closed during hang"):
                await call
            with pytest.raises(Unavailable, match="closed during hang"):
                await client.hang()

    asyncio.run(run())


def as_release(api: type[Any]) -> type[Any]:
    """The interface under the name that the peer serves."""
    return type("DataNodeApi", (api,), {"__annotations__": {}})


def test_a_method_that_the_peer_does_not_know_is_no_lost_peer() -> None:
    async def run() -> None:
        async with served((DataNodeApi, Recorder(DataNodeApi))) as channel:
            with pytest.raises(Internal, match="does not know polish"):
                await channel.client(as_release(NewerDataNodeApi)).polish("v")

    asyncio.run(run())


def test_arguments_of_another_type_are_refused_before_the_role_sees_them() -> None:
    async def run() -> None:
        role = Recorder(DataNodeApi)
        async with served((DataNodeApi, role)) as channel:
            with pytest.raises(Internal, match="watch_channels: ValidationError"):
                await channel.client(as_release(OtherDataNodeApi)).watch_channels(1, (1,))
        assert role.asked == []

    asyncio.run(run())


def test_an_answer_of_another_type_is_refused() -> None:
    async def run() -> None:
        async with served((DataNodeApi, Recorder(DataNodeApi))) as channel:
            with pytest.raises(Internal, match="the answer of datanode to flush_segments has another type"):
                await channel.client(as_release(OtherDataNodeApi)).flush_segments(1, "v", (), WHY)

    asyncio.run(run())


def test_a_dataclass_with_a_field_more_is_read_by_an_older_peer() -> None:
    assignment = sample(ChannelAssignment)
    grown = msgspec.to_builtins(assignment) | {"lag_ms": 7}
    assert msgspec.convert(grown, ChannelAssignment) == assignment


def test_a_client_has_no_methods_but_its_interfaces() -> None:
    async def run() -> None:
        channel = RpcChannel("unix:/nowhere")
        with pytest.raises(AttributeError):
            _ = channel.client(DataNodeApi).polish  # type: ignore[attr-defined]
        await channel.close()

    asyncio.run(run())


def test_waiting_for_a_peer_that_does_not_come_up_ends() -> None:
    async def run() -> None:
        channel = RpcChannel("unix:/nowhere")
        with pytest.raises(DeadlineExceeded):
            await channel.ready(0.02)
        await channel.close()

    asyncio.run(run())


class WithDefaults(Protocol):
    async def ask(self, a: int, b: tuple[int, ...] = (7,), c: int = 3) -> int: ...


class QuickToConnect:
    """Stands for a gRPC channel that connects between two looks at it. ``looks``: how many come before."""

    def __init__(self, looks: int) -> None:
        self._states = [grpc.ChannelConnectivity.CONNECTING] * looks

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._states.pop() if self._states else grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        if not self._states and last is grpc.ChannelConnectivity.READY:
            await asyncio.Event().wait()


@pytest.mark.parametrize("looks", range(4))
def test_a_connection_that_comes_between_two_looks_is_seen(looks: int) -> None:
    async def connect() -> None:
        channel = RpcChannel("127.0.0.1:1")
        real, channel._channel = channel._channel, QuickToConnect(looks)
        try:
            async with asyncio.timeout(5):
                await channel.reachable()
        finally:
            await real.close()

    asyncio.run(connect())


def test_what_a_caller_leaves_out_goes_with_its_default() -> None:
    class Role:
        async def ask(self, a: int, b: tuple[int, ...], c: int) -> int:
            return a * 100 + b[0] * 10 + c

    async def check() -> None:
        async with served((WithDefaults, Role())) as channel:
            client = channel.client(WithDefaults)
            answers = [await client.ask(1), await client.ask(1, (2,)), await client.ask(1, c=9)]
            assert answers == [173, 123, 179]
            with pytest.raises(TypeError, match="missing a required argument"):
                await client.ask()  # type: ignore[call-arg]

    asyncio.run(check())
