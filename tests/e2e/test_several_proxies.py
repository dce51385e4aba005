"""Two proxies of one system, through a client each: one order of things, at either proxy.

The server has no pipeline process: nothing here is flushed, so it starts in a moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import Server, as_of, fresh_timestamp, until
from pymilvus import DataType, MilvusClient, MilvusException

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
