"""The front of a proxy as both kinds of servers open it: one port, one guard, one set of metrics."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any, NoReturn

import grpc
import pytest
import requests

from elanus.api.connector import ConnectorApi
from elanus.core.errors import NotReady
from elanus.core.ids import NodeID
from elanus.metrics import Metrics
from elanus.proxy.api.introspection import ComponentView
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2
from elanus.rpc.carrier import RpcChannel
from elanus.server.console_source import ConsoleSource
from elanus.server.fronts import Fronts
from elanus.server.http_front import HttpFront, http_front
from elanus.server.settings import ProxySettings
from elanus.server.settings_http import HttpSettings
from elanus.server.startup import PortTaken
from elanus.server.status import PipelineStatus, Status


class FakeProcess:
    snapshots: Any = None
    import_url = "file:///import"

    def pressure(self) -> Any:
        return None

    def components(self) -> list[ComponentView]:
        return [ComponentView(NodeID(4), "proxy", False, "it starts")]


def no_proxy() -> NoReturn:
    raise NotReady("the proxy starts")


def empty_status() -> Status:
    return Status("1", 0.0, [], [], [], [], PipelineStatus("Healthy", None, 0))


def front(stack: AsyncExitStack, metrics: Metrics, port: int = 0) -> str:
    settings = ProxySettings(host="127.0.0.1")
    return fronts(settings, metrics).open(stack, port, no_proxy)


def fronts(settings: ProxySettings, metrics: Metrics) -> Fronts:
    return Fronts(settings, FakeProcess(), metrics, "STANDALONE", None)


def counted(metrics: Metrics) -> dict[tuple[str, str], float]:
    (family,) = metrics.requests.collect()
    return {
        (sample.labels["rpc"], sample.labels["code"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_total")
    }


async def health(address: str) -> milvus_pb2.CheckHealthResponse:
    async with grpc.aio.insecure_channel(address) as channel:
        ask = channel.unary_unary(
            f"/{SERVICE.full_name}/CheckHealth",
            response_deserializer=milvus_pb2.CheckHealthResponse.FromString,
        )
        answer: milvus_pb2.CheckHealthResponse = await ask(b"", timeout=10)
        return answer


def test_rpcs_and_the_calls_of_own_clients_are_answered_and_counted_on_one_port() -> None:
    async def run() -> None:
        metrics = Metrics()
        async with AsyncExitStack() as stack:
            address = front(stack, metrics)
            assert list((await health(address)).reasons) == ["proxy 4 is not healthy: it starts"]
            channel = RpcChannel(address)
            stack.push_async_callback(channel.close)
            own = channel.client(ConnectorApi)
            assert await own.import_directory() == "file:///import"
            with pytest.raises(NotReady, match="the proxy starts"):
                await own.release(3)
        assert counted(metrics) == {
            ("CheckHealth", "0"): 1.0,
            ("ConnectorApi.import_directory", "0"): 1.0,
            ("ConnectorApi.release", str(NotReady.code)): 1.0,
        }

    asyncio.run(run())


def test_a_port_that_is_taken_names_the_option() -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            port = int(front(stack, Metrics()).rpartition(":")[2])
            with pytest.raises(PortTaken, match="choose another with --port PORT"):
                front(stack, Metrics(), port)

    asyncio.run(run())


def test_the_rest_api_is_opened_next_to_the_port_and_counts_the_same_operations() -> None:
    async def run() -> None:
        metrics = Metrics()
        async with AsyncExitStack() as stack:
            http = HttpFront(HttpSettings(port=0))
            settings = ProxySettings(host="127.0.0.1")
            fronts(settings, metrics).open(stack, 0, no_proxy, http)
            answer = await asyncio.to_thread(
                requests.post, f"{http.url}/v2/vectordb/collections/list", json={}, timeout=30
            )
            assert answer.json() == {"code": NotReady.code, "message": "the proxy starts"}
        assert counted(metrics) == {("ShowCollections", str(NotReady.code)): 1.0}
        with pytest.raises(requests.ConnectionError):
            await asyncio.to_thread(requests.get, http.url, timeout=30)

    asyncio.run(run())


def test_a_rest_port_that_is_taken_names_the_setting() -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            port = int(front(stack, Metrics()).rpartition(":")[2])
            http = HttpFront(HttpSettings(port=port))
            settings = ProxySettings(host="127.0.0.1")
            with pytest.raises(PortTaken, match=r"http\.port=PORT"):
                fronts(settings, Metrics()).open(stack, 0, no_proxy, http)

    asyncio.run(run())


def test_a_rest_port_that_nobody_chose_may_be_taken() -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            taken = int(front(stack, Metrics()).rpartition(":")[2])
            http = HttpFront(HttpSettings())
            settings = ProxySettings(host="127.0.0.1", port=max(taken - 1000, 1))
            fronts(settings, Metrics()).open(stack, 0, no_proxy, http)
            assert http.url not in ("", f"http://127.0.0.1:{taken}")

    asyncio.run(run())


def test_the_rest_port_is_above_the_proxys_unless_it_is_set() -> None:
    assert HttpSettings().port_for(19530) == 20530
    assert HttpSettings().port_for(0) == 0
    assert HttpSettings().port_for(65_000) == 0
    assert HttpSettings(port=8080).port_for(19530) == 8080
    assert http_front(HttpSettings(enabled=False)) is None


def test_a_server_without_the_rest_api_does_not_load_it() -> None:
    program = (
        "import sys, elanus.server.standalone, elanus.server.cluster.run\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'starlette', 'uvicorn', 'httptools'}, loaded\n"
        "assert 'elanus.proxy.rest' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_the_console_is_on_the_rest_port_unless_it_is_switched_off() -> None:
    async def found(settings: HttpSettings) -> list[int]:
        async with AsyncExitStack() as stack:
            metrics = Metrics()
            http = http_front(settings, ConsoleSource(empty_status, list, metrics.registry))
            settings_of_proxy = ProxySettings(host="127.0.0.1")
            fronts(settings_of_proxy, metrics).open(stack, 0, no_proxy, http)
            assert http is not None
            paths = ("/ui/", "/ui/api/status")
            answers = [await asyncio.to_thread(requests.get, http.url + p, timeout=30) for p in paths]
            return [answer.status_code for answer in answers]

    assert asyncio.run(found(HttpSettings(port=0))) == [200, 200]
    assert asyncio.run(found(HttpSettings(port=0, console=False))) == [404, 404]


def test_the_figures_of_the_console_are_metrics_that_there_are() -> None:
    metrics = Metrics()
    metrics.rows_inserted.inc(7)
    figures = ConsoleSource(empty_status, list, metrics.registry).figures()
    assert figures["rowsInserted"] == 7
    assert {"rowsDeleted", "searchVectors", "growingBytes", "logBytes"} <= figures.keys()
    assert 0 < figures["memoryBytes"] < figures["machineMemoryBytes"]


def test_the_figures_of_the_console_ask_only_for_their_metrics() -> None:
    class Other:
        asked = 0

        def collect(self) -> list[Any]:
            self.asked += 1
            return []

        def describe(self) -> list[Any]:
            return []

    metrics, other = Metrics(), Other()
    metrics.registry.register(other)
    ConsoleSource(empty_status, list, metrics.registry).figures()
    assert other.asked == 0
