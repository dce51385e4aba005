"""A delete by filter takes the keys that match in steps of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest
from fakes import collection
from proxy_bench import Bench, ServesAll, resolved

from elanus.api.querynode import NodeQuery
from elanus.core.errors import Unavailable
from elanus.core.messages import DeleteMessage
from elanus.core.requests import RequestLimits
from elanus.core.timestamps import Timestamp
from elanus.proxy.api.writes import Delete, MutationResult
from elanus.proxy.fanout.deadline import Patience

OF = collection(shards=2)
STEP = 10


class HasKeys(ServesAll):
    """A node with these keys: a query finds those after the last one of the step before."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.keys = list(range(100, 100 + count))
        self.failing_at = 1000

    def service_time(self, _collection_id: int, _patience: Patience) -> Timestamp:
        return Timestamp(1)

    def query(self, request: NodeQuery, patience: Patience) -> dict[str, pa.Array]:
        self.asked.append(request)
        if len(self.asked) > self.failing_at:
            raise Unavailable("query node 7 cannot be reached; retry")
        after = dict(request.filter.values).get("elanus_last_key", -1)
        found = [key for key in self.keys if key > after]  # type: ignore[operator]
        return {"pk": pa.array(found[: request.limit], pa.int64())}


def deleting(count: int, work: Callable[[Bench], None]) -> Bench:
    """Run ``work`` in a thread, as gRPC would, with ``count`` rows that match."""

    async def run() -> Bench:
        bench = Bench(OF)
        bench.nodes = HasKeys(count)
        bench.proxy._nodes = bench.proxy.reads.nodes = bench.nodes
        bench.proxy.limits = RequestLimits(delete_step_keys_max=STEP)
        await bench.proxy.start()
        await asyncio.to_thread(work, bench)
        await bench.proxy.stop()
        return bench

    return asyncio.run(run())


def delete(bench: Bench) -> MutationResult:
    return bench.verbs.delete(Delete(resolved(OF), "", "price > 3 or price < 1"))


def deleted(bench: Bench) -> dict[int, list[int]]:
    """The deleted keys by timestamp."""
    found: dict[int, list[int]] = {}
    for message in bench.messages():
        assert isinstance(message, DeleteMessage)
        found.setdefault(message.ts, []).extend(message.primary_keys.to_pylist())
    return {ts: sorted(found[ts]) for ts in sorted(found)}


@pytest.mark.parametrize(("count", "steps"), [(0, 0), (9, 1), (10, 1), (11, 2), (20, 2), (35, 4)])
def test_matching_keys_are_deleted_in_steps_in_the_order_of_the_keys(count: int, steps: int) -> None:
    results: list[MutationResult] = []
    bench = deleting(count, lambda bench: results.append(delete(bench)))
    (result,) = results
    assert result.delete_count == count
    by_ts = deleted(bench)
    assert len(by_ts) == steps
    assert [key for keys in by_ts.values() for key in keys] == bench.nodes.keys  # type: ignore[attr-defined]
    assert all(len(keys) <= STEP for keys in by_ts.values())
    if steps:
        assert result.ts == max(by_ts), "a read as of the result's timestamp sees none of them"


def test_all_steps_read_as_of_the_moment_of_the_first() -> None:
    """Otherwise rows that are written meanwhile would be deleted too, or the delete would never end."""
    asked = deleting(35, delete).nodes.asked
    assert len(asked) == 4
    assert len({request.read_ts for request in asked}) == 1
    assert {request.limit for request in asked} == {STEP}
    assert [dict(request.filter.values).get("elanus_last_key") for request in asked] == [None, 109, 119, 129]
    assert all(" and (price > 3 or price < 1)" in request.filter.text for request in asked[1:])


def test_a_sample_is_deleted_in_steps_too() -> None:
    """A sample is the last condition, so the key that the steps go on from is before it."""

    def work(bench: Bench) -> None:
        bench.verbs.delete(Delete(resolved(OF), "", "price > 3 and random_sample(0.5)"))

    assert len(deleting(15, work).nodes.asked) == 2


def test_a_step_that_fails_leaves_those_before_it_done() -> None:
    def work(bench: Bench) -> None:
        bench.nodes.failing_at = 2  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            delete(bench)
        bench.nodes = replace_keys(bench)
        bench.proxy.reads.nodes = bench.nodes
        assert delete(bench).delete_count == 5

    bench = deleting(25, work)
    assert [key for keys in deleted(bench).values() for key in keys] == list(range(100, 125))


def replace_keys(bench: Bench) -> HasKeys:
    """A node without the keys that have been deleted."""
    gone = {key for keys in deleted(bench).values() for key in keys}
    nodes = HasKeys(0)
    nodes.keys = [key for key in bench.nodes.keys if key not in gone]  # type: ignore[attr-defined]
    return nodes


def test_keys_that_a_filter_names_are_deleted_at_once() -> None:
    keys = list(range(500, 550))

    def work(bench: Bench) -> None:
        assert bench.verbs.delete(Delete(resolved(OF), "", f"pk in {keys}")).delete_count == 50

    assert list(deleted(deleting(0, work)).values()) == [keys]
