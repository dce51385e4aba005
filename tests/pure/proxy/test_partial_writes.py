"""A write over several pchannels of which one fails: what a client learns, asked over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from fakes import collection, schema
from google.protobuf import message_factory
from google.protobuf.message import Message
from proxy_bench import Bench

from elanus.core.catalog import Collection
from elanus.core.channels import pchannel_of, shard_of_keys
from elanus.core.errors import DiskFull, LeaseLost, PartlyWritten, Unavailable
from elanus.core.schema import DataType
from elanus.log.memory import MemoryLog
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.calls import Calls
from elanus.proxy.verbs.partial_writes import _ranges
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.server import MilvusServer
from elanus.proxy.wire.stubs import SERVICE, milvus_pb2, schema_pb2

PLAIN = collection(shards=2)
AUTO = collection(schema(auto_id=True), shards=2)
ROWS = 20
LOST = pchannel_of(PLAIN.vchannels[1])

Send = Callable[[str, Message], Any]


class FailingLog(MemoryLog):
    """Has no room on one pchannel, or on none. ``answers``: False if that one stores, and does not say so."""

    lost: str = LOST
    answers = True

    async def append(self, pchannel: str, entries: Any, *, durable: bool = True) -> Any:
        if pchannel == self.lost and not self.answers:
            await super().append(pchannel, entries, durable=durable)
            raise Unavailable("the server went away; whether it was stored is not known")
        if pchannel == self.lost:
            raise DiskFull("no room left for the log; free disk space")
        return await super().append(pchannel, entries, durable=durable)


def over_the_wire(of: Collection, work: Callable[[Send, Bench], None]) -> Bench:
    """Run ``work`` next to a server, around a proxy whose log fails on `LOST`."""

    async def run() -> Bench:
        bench = Bench(of, log=FailingLog())
        await bench.proxy.start()
        operations = milvus_operations(milvus_families(bench.verbs, "STANDALONE"))
        server = MilvusServer(Calls(operations, AllowAll(), lambda *_: None), "127.0.0.1", 0, max_workers=2)
        port = server.start()

        def use() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

                def send(rpc: str, request: Message) -> Any:
                    answer = message_factory.GetMessageClass(SERVICE.methods_by_name[rpc].output_type)
                    call = channel.unary_unary(
                        f"/{SERVICE.full_name}/{rpc}",
                        request_serializer=type(request).SerializeToString,
                        response_deserializer=answer.FromString,
                    )
                    return call(request, timeout=20)

                work(send, bench)

        await asyncio.to_thread(use)
        server.stop(grace_s=0)
        await bench.proxy.stop()
        return bench

    return asyncio.run(run())


def columns(keys: Sequence[int] | None, rows: int = ROWS) -> list[schema_pb2.FieldData]:
    vectors = schema_pb2.FieldData(field_name="v0", type=schema_pb2.FloatVector)
    vectors.vectors.dim = 2
    vectors.vectors.float_vector.data.extend([0.5] * (2 * rows))
    prices = schema_pb2.FieldData(field_name="price", type=schema_pb2.Double)
    prices.scalars.double_data.data.extend(range(rows))
    if keys is None:
        return [vectors, prices]
    ids = schema_pb2.FieldData(field_name="pk", type=schema_pb2.DataType.ValueType(DataType.INT64))
    ids.scalars.long_data.data.extend(keys)
    return [ids, vectors, prices]


def insert(keys: Sequence[int] | None = None, rows: int = ROWS) -> milvus_pb2.InsertRequest:
    return milvus_pb2.InsertRequest(collection_name="c", fields_data=columns(keys, rows), num_rows=rows)


def upsert(keys: Sequence[int]) -> milvus_pb2.UpsertRequest:
    return milvus_pb2.UpsertRequest(collection_name="c", fields_data=columns(keys), num_rows=ROWS)


def stored_prices(bench: Bench) -> list[float]:
    return sorted(p for m in bench.messages() for p in m.rows.column("price").to_pylist())


def test_an_insert_that_failed_in_part_says_which_rows_are_stored_and_a_client_can_send_the_others() -> None:
    def work(send: Send, bench: Bench) -> None:
        answer = send("Insert", insert())
        assert (answer.status.code, answer.status.error_code) == (1302, 1)
        assert not answer.status.retriable
        assert sorted([*answer.succ_index, *answer.err_index]) == list(range(ROWS))
        assert [float(n) for n in answer.succ_index] == stored_prices(bench)
        assert 0 < answer.insert_cnt == len(answer.succ_index) < ROWS
        keys = answer.IDs.int_id.data
        assert len(keys) == ROWS
        stored = [keys[n] for n in answer.succ_index]
        assert sorted(k for m in bench.messages() for k in m.rows.column("pk").to_pylist()) == sorted(stored)
        text = answer.status.reason
        assert text.startswith(f"{len(stored)} of {ROWS} rows were inserted, namely numbers ")
        assert _ranges(answer.succ_index) in text
        assert f"{LOST}: no room left for the log" in text
        assert "send only the other rows again" in text
        bench.log.lost = ""  # type: ignore[attr-defined]
        again = insert(rows=len(answer.err_index))
        again.fields_data[1].scalars.double_data.data[:] = [float(n) for n in answer.err_index]
        assert send("Insert", again).status.code == 0

    assert stored_prices(over_the_wire(AUTO, work)) == [float(n) for n in range(ROWS)]


def test_rows_that_may_have_been_stored_are_not_to_be_sent_again_unseen() -> None:
    def work(send: Send, bench: Bench) -> None:
        bench.log.answers = False  # type: ignore[attr-defined]
        answer = send("Insert", insert())
        assert answer.status.code == 1302
        assert 0 < len(answer.succ_index) < ROWS
        assert len(answer.IDs.int_id.data) == ROWS
        assert "send only the other rows again" not in answer.status.reason
        assert "look for their keys, which are in the answer, before you send them" in answer.status.reason

    assert stored_prices(over_the_wire(AUTO, work)) == [float(n) for n in range(ROWS)]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_rows_of_an_append_that_was_stored_in_part_are_not_to_be_sent_again_unseen(elsewhere: bool) -> None:
    """Even if another pchannel, which is asked first, stored nothing."""
    keys = range(ROWS) if elsewhere else [k for k in range(99) if shard_of_keys(ids([k]), 2)[0] == 1][:ROWS]

    def work(send: Send, bench: Bench) -> None:
        async def append(pchannel: str, entries: Any, *, durable: bool = True) -> Any:
            if pchannel != LOST:
                raise DiskFull("no room left for the log; free disk space")
            raise PartlyWritten("1000 of 1001 entries were stored", is_certain=False)

        bench.log.append = append  # type: ignore[method-assign]
        answer = send("Insert", insert(keys))
        assert (answer.status.code, list(answer.succ_index)) == (1302, [])
        assert list(answer.IDs.int_id.data) == list(keys)
        assert answer.status.reason.startswith(f"it is not known which of {ROWS} rows were inserted: ")
        assert "some may have been stored all the same: look for their keys" in answer.status.reason

    over_the_wire(PLAIN, work)


def test_an_append_that_was_stored_in_part_makes_the_outcome_of_its_rows_unknown() -> None:
    def work(send: Send, bench: Bench) -> None:
        append = bench.log.append

        async def partly(pchannel: str, entries: Any, *, durable: bool = True) -> Any:
            if pchannel == LOST:
                raise PartlyWritten("1000 of 1001 entries were stored", is_certain=False)
            return await append(pchannel, entries, durable=durable)

        bench.log.append = partly  # type: ignore[method-assign]
        answer = send("Insert", insert())
        assert 0 < len(answer.succ_index) < ROWS
        assert f"the others failed: {LOST}: 1000 of 1001 entries" in answer.status.reason
        assert "the others may have been stored all the same" in answer.status.reason

    over_the_wire(AUTO, work)


def test_an_upsert_of_own_keys_may_be_repeated_as_a_whole() -> None:
    def work(send: Send, bench: Bench) -> None:
        answer = send("Upsert", upsert(range(ROWS)))
        assert answer.status.code == 1302
        assert list(answer.succ_index) == np.flatnonzero(shard_of_keys(ids(range(ROWS)), 2) == 0).tolist()
        assert "repeating the whole request does no harm" in answer.status.reason

    over_the_wire(PLAIN, work)


def test_an_upsert_that_gives_new_keys_may_not() -> None:
    def work(send: Send, bench: Bench) -> None:
        answer = send("Upsert", upsert(range(ROWS)))
        assert list(answer.succ_index) == np.flatnonzero(shard_of_keys(ids(range(ROWS)), 2) == 0).tolist()
        assert "send only the other rows again" in answer.status.reason
        assert [float(n) for n in answer.succ_index] == stored_prices(bench)

    over_the_wire(AUTO, work)


def test_a_delete_that_failed_in_part_may_be_repeated() -> None:
    def work(send: Send, bench: Bench) -> None:
        request = milvus_pb2.DeleteRequest(collection_name="c", expr=f"pk in {list(range(ROWS))}")
        answer = send("Delete", request)
        assert answer.status.code == 1302
        assert answer.delete_cnt == sum(len(m.primary_keys) for m in bench.messages())
        assert "keys were deleted" in answer.status.reason
        assert "repeating the whole request does no harm" in answer.status.reason

    over_the_wire(PLAIN, work)


def test_an_insert_of_which_nothing_is_stored_fails_with_the_cause() -> None:
    keys = [k for k in range(1000) if shard_of_keys(ids([k]), 2)[0] == 1][:ROWS]

    def work(send: Send, bench: Bench) -> None:
        answer = send("Insert", insert(keys))
        assert (answer.status.code, list(answer.succ_index)) == (DiskFull.code, [])

    assert over_the_wire(PLAIN, work).messages() == []


def test_nothing_counts_as_stored_when_the_lease_was_lost_meanwhile() -> None:
    """Then the entries may be late, and readers ignore late entries."""

    def work(send: Send, bench: Bench) -> None:
        append = bench.log.append

        async def last(pchannel: str, entries: Any, *, durable: bool = True) -> Any:
            bench.lease.calls.failing["confirm"] = LeaseLost("the session of proxy 1 is over; retry")
            return await append(pchannel, entries, durable=durable)

        bench.log.append = last  # type: ignore[method-assign]
        answer = send("Insert", insert())
        assert (answer.status.code, list(answer.succ_index)) == (LeaseLost.code, [])

    over_the_wire(AUTO, work)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([4], "4"), ([0, 1, 2, 5, 7, 8], "0-2, 5, 7-8"), ([0, 2], "0, 2")],
)
def test_numbers_are_shown_as_ranges(numbers: list[int], text: str) -> None:
    assert _ranges(numbers) == text


def test_a_long_list_of_ranges_is_cut() -> None:
    text = _ranges(list(range(0, 2000, 2)))
    assert text.endswith("36, 38 and others (succ_index has all)")
    assert len(text) < 200


def ids(keys: Sequence[int]) -> pa.Array:
    return pa.array(list(keys), pa.int64())
