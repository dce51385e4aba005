"""Ranges of any size are read from etcd, in answers that a connection takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc
import pytest
from aetcd import rpc
from aetcd.rpc import rpc_pb2_grpc as stubs

from elanus.core.errors import DiskFull, ElanusError, Internal, Unavailable
from elanus.meta.etcd import EtcdMeta
from elanus.meta.etcd_link import AnswerLost, EtcdLink
from elanus.meta.port import Versioned

T = TypeVar("T")
MIB = 1 << 20
REVISION = 5


class FakeKv(stubs.KVServicer):  # type: ignore[misc]
    """An etcd with these values, in the order of their keys. Notes the limits and sizes of its answers."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.entries = [(b"root/record/%06d" % n, value) for n, value in enumerate(values)]
        self.limits: list[int] = []
        self.sizes: list[int] = []
        self.refusal: tuple[grpc.StatusCode, str] | None = None

    async def Range(self, request: Any, context: Any) -> Any:
        if self.refusal is not None:
            await context.abort(*self.refusal)
        found = [(k, v) for k, v in self.entries if request.key <= k < request.range_end]
        shown = found[: request.limit or None]
        kvs = [rpc.KeyValue(key=key, value=value, mod_revision=REVISION) for key, value in shown]
        answer = rpc.RangeResponse(kvs=kvs, more=len(found) > len(shown))
        answer.header.revision = REVISION
        self.limits.append(request.limit)
        self.sizes.append(answer.ByteSize())
        return answer


def with_etcd(kv: FakeKv, body: Callable[[EtcdMeta], Awaitable[T]]) -> T:
    async def run() -> T:
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        stubs.add_KVServicer_to_server(kv, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        store = EtcdMeta([f"127.0.0.1:{port}"], root="root", owner="tests", timeout_s=60.0)
        try:
            return await body(store)
        finally:
            await store.close()
            await server.stop(0)

    return asyncio.run(run())


def listed(kv: FakeKv) -> list[tuple[str, Versioned]]:
    async def body(store: EtcdMeta) -> list[tuple[str, Versioned]]:
        return list(await store.list("record/"))

    return with_etcd(kv, body)


def shown(kv: FakeKv) -> list[tuple[str, Versioned]]:
    return [(key.decode().removeprefix("root/"), Versioned(value, REVISION)) for key, value in kv.entries]


def test_records_that_no_single_answer_holds_are_listed() -> None:
    kv = FakeKv([bytes(MIB) for _ in range(70)])
    assert listed(kv) == shown(kv)
    assert max(kv.sizes) > 64 * MIB, "the first page was too large"
    assert len(kv.sizes) <= 40, "the others are sized by the ones before them"


def test_many_small_records_take_few_requests() -> None:
    kv = FakeKv([b"value"] * 5000)
    assert listed(kv) == shown(kv)
    assert len(kv.limits) <= 9
    assert max(kv.limits) <= 1000


def test_pages_shrink_where_records_become_large() -> None:
    kv = FakeKv([b"value"] * 4000 + [bytes(MIB // 8)] * 200)
    assert listed(kv) == shown(kv)


def test_a_page_whose_answer_does_not_arrive_is_asked_for_again_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = EtcdLink.once
    lost = [AnswerLost("too slow"), AnswerLost("too slow")]

    async def slowly(link: EtcdLink, call: Any, deadline_s: float) -> Any:
        answer = await once(link, call, deadline_s)
        if lost:
            raise lost.pop()
        return answer

    monkeypatch.setattr(EtcdLink, "once", slowly)
    kv = FakeKv([b"value"] * 10)
    assert listed(kv) == shown(kv)
    assert kv.limits == sorted(set(kv.limits), reverse=True)
    assert len(kv.limits) == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("etcdserver: mvcc: database space exceeded", DiskFull),
        ("etcdserver: too many requests", Unavailable),
        ("CLIENT: Received message larger than max (73400320 vs. 67108864)", Internal),
    ],
)
def test_neither_a_large_answer_nor_a_busy_etcd_is_a_full_disk(text: str, error: type[ElanusError]) -> None:
    kv = FakeKv([])
    kv.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED, text
    with pytest.raises(ElanusError) as raised:
        listed(kv)
    assert isinstance(raised.value, error)
    assert text in str(raised.value)
