"""Two proxies of one system, through a client each: one order of things, at either proxy. And two processes
that share one port.

The server has no pipeline process: nothing here is flushed, so it starts in a moment.
"""

from __future__ import annotations

import base64
import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest
from harness import Server, as_of, fresh_timestamp, until
from pymilvus import DataType, MilvusClient, MilvusException

from elanus.proxy.wire.stubs import SERVICE, milvus_pb2

pytestmark = pytest.mark.e2e

NAME = "c0"
STRONG = {"consistency_level": "Strong"}
GONE_CODES = {100, 101}
"""Collection not found; collection not loaded."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"proxy.count": 2, "pipeline.enabled": False}
    with Server(tmp_path_factory.mktemp("proxies") / "data", settings) as server:
        yield server.start()
        server.stop()


@pytest.fixture
def users(server: Server) -> Iterator[tuple[MilvusClient, MilvusClient]]:
    """A client of each proxy, and the collection on both."""
    u1, u2 = server.client(0), server.client(1)
    create(u1)
    yield u1, u2
    u1.drop_collection(NAME)


def create(client: MilvusClient, price: DataType = DataType.INT64) -> None:
    schema = MilvusClient.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("price", price)
    schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
    index = MilvusClient.prepare_index_params()
    index.add_index("v", index_type="FLAT", metric_type="L2")
    client.create_collection(NAME, schema=schema, index_params=index, num_shards=2)


def row(key: int, price: object = 1) -> dict[str, object]:
    return {"key": key, "price": price, "v": [float(key), 0.0]}


def keys_found(client: MilvusClient, **how: object) -> list[int]:
    hits = client.search(NAME, data=[[0.0, 0.0]], limit=10, **(how or STRONG))
    return sorted(hit["key"] for hit in hits[0])


def keys_of(client: MilvusClient, **how: object) -> list[int]:
    rows = client.query(NAME, filter="key >= 0", output_fields=["key"], **(how or STRONG))
    return [row["key"] for row in rows]


def test_the_worked_table_of_two_users(users: tuple[MilvusClient, MilvusClient]) -> None:
    """u2 sees a write of u1 at once through the other proxy; and later, as of each moment."""
    u1, u2 = users  # t0: u1 has created the collection
    seen = [keys_found(u2)]  # t2
    moments = [fresh_timestamp(u2)]
    for change in (
        lambda: u1.insert(NAME, [row(1)]),  # t5: insert A1
        lambda: u1.insert(NAME, [row(2)]),  # t10: insert A2
        lambda: u1.delete(NAME, ids=[1]),  # t15: delete A1
    ):
        change()
        seen.append(keys_found(u2))  # t7, t12, t17
        moments.append(fresh_timestamp(u2))
    assert seen == [[], [1], [1, 2], [2]]
    for user in users:
        travelled = [keys_found(user, search_params=travel_to(moment)) for moment in moments]
        assert travelled == seen
        pinned = [keys_of(user, **as_of(moment)) for moment in moments]
        assert pinned == seen


def travel_to(moment: int) -> dict[str, object]:
    return {"params": {"travel_timestamp": moment}}


def test_the_status_names_the_address_of_each(server: Server) -> None:
    addresses = {role["role"]: role["detail"] for role in server.status()["roles"]}
    assert [f"http://{addresses[name]}" for name in ("proxy", "proxy-2")] == server.uris


def test_a_moment_that_cannot_be_read_is_an_error_that_says_why(
    users: tuple[MilvusClient, MilvusClient],
) -> None:
    u1, u2 = users
    now = fresh_timestamp(u1)
    for moment, text in (
        (now - (3600_000 << 18), "before the collection was created"),
        (now + (3600_000 << 18), "in the future"),
        (5, "datacoord.retention_s"),
    ):
        with pytest.raises(MilvusException, match=text):
            keys_found(u2, search_params=travel_to(moment))


def test_a_strong_read_sees_what_was_written_elsewhere(users: tuple[MilvusClient, MilvusClient]) -> None:
    for n in range(40):
        writer, reader = users[n % 2], users[1 - n % 2]
        writer.upsert(NAME, [row(7, price=n)])
        found = reader.query(NAME, ids=[7], output_fields=["price"], **STRONG)
        assert [r["price"] for r in found] == [n]


def test_a_session_reads_its_writes_and_goes_on_at_another_proxy(
    users: tuple[MilvusClient, MilvusClient],
) -> None:
    """The client keeps a session's timestamp by address; what it means is the same everywhere."""
    u1, u2 = users
    for n in range(20):
        written = u1._get_connection().insert_rows(NAME, [row(n)]).timestamp
        assert n in keys_of(u1, consistency_level="Session")
        assert n in keys_of(u2, consistency_level="Customized", guarantee_timestamp=written)


def test_a_definition_is_everywhere_when_it_returns(users: tuple[MilvusClient, MilvusClient]) -> None:
    """The other proxy holds the old collection in its cache, and must not use it once."""
    u1, u2 = users
    for n in range(4):
        kind, value = ((DataType.DOUBLE, 0.5), (DataType.INT64, n))[n % 2]
        keys_of(u2)  # fills the cache
        u1.drop_collection(NAME)
        with pytest.raises(MilvusException) as refused:
            u2.query(NAME, filter="key >= 0")
        assert refused.value.code in GONE_CODES
        create(u1, kind)
        u1.create_partition(NAME, "p")
        u2.insert(NAME, [row(n, value)], partition_name="p")
        assert u1.query(NAME, ids=[n], output_fields=["price"], **STRONG)[0]["price"] == value


def test_reads_and_writes_that_race_with_a_drop_end_clearly(
    users: tuple[MilvusClient, MilvusClient],
) -> None:
    u1, u2 = users
    stop = threading.Event()
    refusals: list[MilvusException] = []

    def repeat(work: Callable[[int], object]) -> int:
        done = 0
        while not stop.is_set():
            try:
                work(done)
                done += 1
            except MilvusException as error:
                refusals.append(error)
        return done

    with ThreadPoolExecutor(4) as pool:
        busy = [
            pool.submit(repeat, lambda n: u2.insert(NAME, [row(n)])),
            pool.submit(repeat, lambda n: u2.delete(NAME, ids=[n])),
            pool.submit(repeat, lambda _: keys_of(u2)),
            pool.submit(repeat, lambda _: keys_found(u1)),
        ]
        until(lambda: keys_of(u1), 10, "rows are there")
        u1.drop_collection(NAME)
        refused = len(refusals)
        until(lambda: len(refusals) > refused + 20, 10, "all are refused")
        stop.set()
    assert all(work.result() > 0 for work in busy)
    assert {error.code for error in refusals} <= GONE_CODES, refusals
    create(u2)
    assert keys_of(u1) == []


def test_a_proxy_that_restarts_stops_neither_the_other_nor_time(
    server: Server, users: tuple[MilvusClient, MilvusClient]
) -> None:
    u1, u2 = users
    u2.insert(NAME, [row(1)])
    server.restart_role("proxy-2")
    u1.insert(NAME, [row(2)])
    assert keys_of(u1) == keys_of(u2) == [1, 2]
    u2.insert(NAME, [row(3)])
    assert keys_of(u1) == [1, 2, 3]


# several processes on one port


class Connections:
    """Connections to one port. The kernel chooses the process of each."""

    def __init__(self, server: Server, token: str) -> None:
        self._address = server.address
        self._port = int(server.address.rpartition(":")[2])
        self._header = (("authorization", base64.b64encode(token.encode()).decode()),)
        self._channels: list[grpc.Channel] = []

    def reach(self, *processes: psutil.Process) -> None:
        """Connect until each of the processes has a connection."""

        def reached() -> bool:
            self._channels.append(
                grpc.insecure_channel(self._address, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            grpc.channel_ready_future(self._channels[-1]).result(60)
            return all(map(self._has, processes))

        until(reached, 60, "every process has a connection")

    def _has(self, process: psutil.Process) -> bool:
        connections = process.net_connections("tcp")
        return any(c.laddr.port == self._port and c.status == psutil.CONN_ESTABLISHED for c in connections)

    def counts(self) -> list[int]:
        """A strong read of each connection."""
        request = milvus_pb2.QueryRequest(
            collection_name=NAME, expr="key >= 0", output_fields=["count(*)"], consistency_level=0
        )
        found = []
        for channel in self._channels:
            answer = self._sent(channel, request.SerializeToString())
            result = milvus_pb2.QueryResults.FromString(answer)
            assert result.status.code == 0, result.status.reason
            found.append(result.fields_data[0].scalars.long_data.data[0])
        return found

    def _sent(self, channel: grpc.Channel, request: bytes) -> bytes:
        """As clients of Milvus do, send again what met the end of a connection."""
        send = channel.unary_unary(f"/{SERVICE.full_name}/Query")
        while True:
            try:
                answer: bytes = send(request, metadata=self._header, wait_for_ready=True, timeout=60)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            else:
                return answer

    def refusals(self) -> list[grpc.StatusCode]:
        found = []
        for n in range(len(self._channels)):
            one = copy.copy(self)
            one._channels = [self._channels[n]]
            with pytest.raises(grpc.RpcError) as refused:
                one.counts()
            found.append(refused.value.code())
        return found

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def serving_process(server: Server) -> psutil.Process | None:
    """The one next to the main one, when reads of the loaded collection are answered there."""
    (state,) = server.status()["serving"]
    return psutil.Process(state["pid"]) if state["pid"] and state["collections"] else None


def test_two_processes_of_one_port_are_one_server(tmp_path: Path) -> None:
    """Each strong read sees each write; a revoke holds at once; one is killed, and nothing is lost."""
    settings = {"proxy.processes": 2, "pipeline.enabled": False, "proxy.authorization_enabled": True}
    with Server(tmp_path / "data", settings) as server:
        server.start()
        root = server.client(token="root:Milvus")
        create(root)
        root.create_user("ada", "secret1")
        root.create_role("reader")
        root.grant_role("ada", "reader")
        root.grant_privilege("reader", "Collection", "Query", NAME)
        first = until(lambda: serving_process(server), 60, "the copy is read")
        ada = Connections(server, "ada:secret1")
        ada.reach(psutil.Process(server.pid), first)
        for n in range(5):
            root.insert(NAME, [row(n)])
            assert set(ada.counts()) == {n + 1}
        root.revoke_privilege("reader", "Collection", "Query", NAME)
        assert set(ada.refusals()) == {grpc.StatusCode.PERMISSION_DENIED}
        root.grant_privilege("reader", "Collection", "Query", NAME)
        until(lambda: server.status()["serving"][0]["reads"], 60, "reads were answered there")
        first.kill()
        root_again = server.client(token="root:Milvus")
        root_again.insert(NAME, [row(5)])
        assert set(ada.counts()) == {6}
        second = until(lambda: serving_process(server), 60, "another process is read")
        assert second.pid != first.pid
        ada.reach(second)
        assert set(ada.counts()) == {6}
        root_again.release_collection(NAME)
        assert server.status()["serving"][0]["restarts"] == 1
        ada.close()
        server.stop()
