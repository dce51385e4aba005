"""Several query nodes on one query channel, and a proxy that reads over all of them.

While segments and the lead of a vchannel move between the nodes, every read sees each row exactly once:
counts are compared, which no de-duplication can correct.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock, patch

import pytest
from channel_world import A, B, Cluster, finished, scenario, waiting
from node_world import COLLECTION, VCHANNEL, breathe, inline

from elanus.api.query_channel import SealedSegmentsChangeInfo, encode_message
from elanus.core.errors import ChannelLost, DeadlineExceeded, NotReady, Unavailable
from elanus.core.ids import NodeID, SegmentID
from elanus.proxy.fanout import answers
from elanus.proxy.fanout import client as fanout
from elanus.proxy.fanout.deadline import Patience
from elanus.querynode import inline_reads, serving
from elanus.querynode.follower import Follower
from elanus.rpc.serving.waiting import client_of_thread


@scenario
async def test_a_segment_handed_off_to_another_node_is_there_once(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2, 3)
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.check()
    await cluster.place({segment_id: B})
    await cluster.check()
    status = await cluster.nodes[A].status()
    assert [s.segment_id for s in status.segments] == []


@scenario
async def test_deletes_reach_a_segment_on_a_node_that_does_not_lead_its_vchannel(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2, 3)
    await cluster.delete([1])
    await cluster.tick()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.delete([2])
    await cluster.insert([(2, 20)])
    await cluster.tick()
    await cluster.check()
    assert await cluster.seen("value == 20") == [2]


@scenario
async def test_a_segment_moves_between_nodes_without_a_gap_or_a_double(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(A, [segment_id])
    await cluster.place({segment_id: A})
    await cluster.load(B, [segment_id])
    await cluster.check()
    await cluster.place({segment_id: B})
    await cluster.check()
    assert (await cluster.nodes[A].status()).loaded == {}


@scenario
async def test_the_lead_of_a_vchannel_moves_with_its_growing_rows(cluster: Cluster) -> None:
    await cluster.insert([(1, 1), (2, 2)])
    await cluster.tick()
    await cluster.watch(B, rows=True)
    assert cluster.nodes[B].count(cluster.node_query()) == 0
    await cluster.check()
    cluster.lead = B
    await cluster.place({})
    await cluster.insert([(3, 3)])
    await cluster.tick()
    await cluster.check()
    assert (await cluster.nodes[A].status()).growing_bytes == 0
    await cluster.nodes[A].unwatch_vchannel(COLLECTION, VCHANNEL)
    await cluster.check()


@scenario
async def test_a_vchannel_whose_release_is_cancelled_half_way_has_no_follower_left(cluster: Cluster) -> None:
    await cluster.watch(B, rows=True)
    cluster.lead = B
    await cluster.place({})
    channel = cluster.nodes[A]._collections[COLLECTION].channels[VCHANNEL]
    served = channel.follower
    assert served is not None
    channel.successor = Mock(spec=Follower)
    with patch.object(served._interim, "stop", asyncio.Event().wait):  # work on blocks takes its time
        releasing = asyncio.create_task(cluster.nodes[A].unwatch_vchannel(COLLECTION, VCHANNEL))
        await breathe()
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing
    channel.successor.retire.assert_called_once_with()
    await served.stop()


@scenario
async def test_a_vchannel_that_is_needed_is_not_let_go(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    with pytest.raises(NotReady, match="this node leads it"):
        await cluster.nodes[A].unwatch_vchannel(COLLECTION, VCHANNEL)
    with pytest.raises(NotReady, match=f"segments \\[{segment_id}\\] need its deletes"):
        await cluster.nodes[B].unwatch_vchannel(COLLECTION, VCHANNEL)


@scenario
async def test_reads_before_a_change_are_answered_under_the_version_before_it(cluster: Cluster) -> None:
    """One node waits for a tick, a change comes behind the read: no node answers under the new version."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    ahead = cluster.node_query(ts=cluster.stamp())
    reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
    await waiting(cluster.nodes[A])
    await cluster.place({segment_id: B})
    assert [(await n.status()).versions[COLLECTION] for n in cluster.nodes.values()] == [1, 2]
    await cluster.tick()
    assert await reading == 2
    await cluster.check()


@scenario
async def test_rows_that_came_elsewhere_by_compaction_are_not_taken_from_the_log_any_more(
    cluster: Cluster,
) -> None:
    """The deletes of a segment whose successor came online before the node had read that far."""
    behind = cluster.open[1] = SegmentID(77)
    await cluster.place({}, replaced=(behind,))
    await cluster.insert([(1, 1), (2, 2)])
    await cluster.tick()
    assert await cluster.counted() == 0
    for node in cluster.nodes.values():
        node.invariants()


@scenario
async def test_a_version_that_comes_late_is_left_out(cluster: Cluster) -> None:
    """As a coordinator writes it that was replaced meanwhile. Else one node would answer for another."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    for version in (cluster.version, cluster.version - 1):
        late = SealedSegmentsChangeInfo(COLLECTION, version, {segment_id: A}, {}, {VCHANNEL: A})
        await cluster.channels.publish(cluster.channel, encode_message(late))
    slow = cluster.nodes[B]._serving[COLLECTION]

    async def offload(function: Callable[..., bytes], *args: Any) -> bytes:
        await breathe()
        return function(*args)

    slow._offload = offload
    await cluster.check()


@scenario
async def test_a_node_that_lacks_its_segment_fails_the_read_and_never_answers_with_less(
    cluster: Cluster,
) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.place({segment_id: B})
    with pytest.raises(Unavailable, match="query node 12 cannot serve this version"):
        await cluster.counted()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.check()


@scenario
async def test_after_a_version_that_a_node_could_not_take_every_row_is_there_once(cluster: Cluster) -> None:
    """It was to let go of growing rows, whose sealed copy another node serves from that version on."""
    segment_id = await finished(cluster, 1, 2)
    await cluster.load(B, [segment_id])
    lacking = SegmentID(99)
    await cluster.place({segment_id: B, lacking: A})
    with pytest.raises(Unavailable, match="query node 11 cannot serve this version"):
        await cluster.counted()
    refused = [(await node.status()).refused for node in cluster.nodes.values()]
    assert refused == [{COLLECTION: cluster.version}, {}]
    await cluster.place({}, offline=(lacking,))
    await cluster.check()
    assert not (await cluster.nodes[A].status()).refused


@scenario
async def test_what_a_version_replaced_that_a_node_could_not_take_stays_replaced(cluster: Cluster) -> None:
    behind, lacking = SegmentID(77), SegmentID(99)
    cluster.open[1] = behind
    await cluster.place({lacking: A}, replaced=(behind,))
    await cluster.place({}, offline=(lacking,))
    await cluster.insert([(1, 1), (2, 2)])
    await cluster.tick()
    assert await cluster.counted() == 0


@scenario
async def test_a_lost_channel_is_followed_by_another(cluster: Cluster) -> None:
    segment_id = await finished(cluster, 1, 2)
    await cluster.check()
    await cluster.channels.remove(cluster.channel)
    await breathe()
    assert (await cluster.nodes[A].status()).query_channels == {}
    cluster.channel = "query-2"
    await cluster.channels.create(cluster.channel)
    for node in cluster.nodes.values():
        await node.add_query_channel(cluster.info())
    await cluster.check()
    await cluster.load(B, [segment_id])
    await cluster.place({segment_id: B})
    await cluster.check()


@scenario
async def test_a_read_on_a_channel_that_is_lost_meanwhile_goes_to_its_successor(cluster: Cluster) -> None:
    """It was written there, and nobody will answer it."""
    ahead = cluster.node_query(ts=cluster.now + 100)
    with patch.object(fanout, "_LOOK_S", 0.01):
        reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
        await waiting(cluster.nodes[A])
        await cluster.channels.remove(cluster.channel)
        cluster.channel = "query-2"
        await cluster.channels.create(cluster.channel)
        for node in cluster.nodes.values():
            await node.add_query_channel(cluster.info())
        await waiting(cluster.nodes[A])
        cluster.now += 100
        await cluster.tick()
        assert await reading == 0


@scenario
async def test_a_read_whose_answers_found_no_channel_is_asked_again(cluster: Cluster) -> None:
    ahead = cluster.node_query(ts=cluster.now + 100)
    with patch.object(answers, "_RETRY_PAUSE_S", 0.05):
        await cluster.channels.remove("results-1")
        await breathe()  # the proxy has noticed, and has not made another yet
        reading = asyncio.create_task(asyncio.to_thread(cluster.proxy.count, ahead, Patience(5.0)))
        await waiting(cluster.nodes[A])
        cluster.now += 100
        await cluster.tick()
        assert await reading == 0


@scenario
async def test_a_channel_of_answers_that_is_lost_is_replaced_under_another_name(cluster: Cluster) -> None:
    """A broker keeps the name while it does not reach what had it."""
    with patch.object(answers, "_RETRY_PAUSE_S", 0.0):
        for name, successor in (("results-1", "results-1-2"), ("results-1-2", "results-1-3")):
            await cluster.channels.remove(name)
            await breathe()
            assert await cluster.channels.end(successor) == 1
            await cluster.check()
            with pytest.raises(ChannelLost):
                await cluster.channels.end(name)


@scenario
async def test_a_channel_without_a_successor_is_an_error(cluster: Cluster) -> None:
    await cluster.channels.remove(cluster.channel)
    with pytest.raises(ChannelLost, match="query-1 does not exist"):
        await cluster.counted()


@scenario
async def test_large_reads_and_answers_go_around_the_channel(cluster: Cluster) -> None:
    with patch.object(serving, "PAYLOAD_MAX_BYTES", 10), patch.object(fanout, "PAYLOAD_MAX_BYTES", 10):
        await cluster.insert([(n, n) for n in range(50)])
        await cluster.tick()
        await cluster.check()


@scenario
async def test_nodes_keep_short_filters_and_no_long_ones(cluster: Cluster) -> None:
    """A node would keep hundreds of lists of keys, of megabytes each."""
    await cluster.insert([(n, n) for n in range(10)])
    await cluster.tick()
    with patch.object(serving, "query", Mock(wraps=serving.query)) as query:
        for text in ("id in [1]", f"id in [{', '.join(map(str, range(30_000)))}]"):
            await cluster.seen(text)
            await cluster.seen(text)
    filters = [call.args[1].filter for call in query.call_args_list]
    short, long = ([f for f in filters if (len(f.text) > 100) is is_long] for is_long in (False, True))
    assert [len(set(map(id, found))) for found in (short, long)] == [2, 4], "one for each of the two nodes"


@scenario
async def test_only_a_read_that_is_small_is_answered_without_a_thread(cluster: Cluster) -> None:
    await cluster.insert([(n, n) for n in range(10)])
    await cluster.tick()
    offloaded: list[NodeID] = []

    async def offload(node_id: NodeID, function: Callable[..., bytes], *args: Any) -> bytes:
        offloaded.append(node_id)
        return await inline(function, *args)

    for node_id, node in cluster.nodes.items():
        node._serving[COLLECTION]._offload = partial(offload, node_id)
    search = partial(asyncio.to_thread, cluster.proxy.search, patience=Patience(5.0))
    small = cluster.node_search(4.2, 4)
    hits = await search(small)
    assert hits.ids.tolist() == [4, 5, 3, 6]
    assert offloaded == []
    for large in (
        cluster.node_search(4.2, 4, "value > 0"),
        replace(small, output_fields=("value", "vector")),
    ):
        assert (await search(large)).ids.tolist() == [4, 5, 3, 6]
        assert sorted(offloaded) == [A, B]
        offloaded.clear()
    values = 10 * 2 * len(small.queries)
    for most, expected in ((values, []), (values - 1, [A])):  # B holds no rows
        with patch.object(inline_reads, "SMALL_VALUES_MAX", most):
            await search(small)
        assert offloaded == expected


@scenario
async def test_a_search_over_nodes_finds_what_one_would(cluster: Cluster) -> None:
    first = await finished(cluster, 1, 3, 5)
    second = await finished(cluster, 2, 4, 5)
    await cluster.load(A, [first])
    await cluster.load(B, [second])
    await cluster.place({first: A, second: B})
    await cluster.insert([(6, 6)])
    await cluster.tick()
    hits = await asyncio.to_thread(cluster.proxy.search, cluster.node_search(4.2, 4), Patience(5.0))
    assert hits.ids.tolist() == [4, 5, 3, 6]
    assert hits.fields["value"].to_pylist() == [4, 5, 3, 6]


@scenario
async def test_a_weak_read_of_a_proxy_that_knows_nothing_yet_sees_what_is_ticked(cluster: Cluster) -> None:
    await cluster.insert([(1, 1)])
    tick = await cluster.tick()
    assert await asyncio.to_thread(cluster.proxy.service_time, COLLECTION, Patience(5.0)) == tick


@scenario
async def test_work_on_a_read_sees_that_the_proxy_waits_no_longer(cluster: Cluster) -> None:
    seen: list[bool] = []

    def long(*_: object) -> int:
        is_gone = client_of_thread()
        assert is_gone is not None
        seen.append(is_gone())
        until_s = time.monotonic() + (30 if waits_s < 60 else 0)
        while not is_gone() and time.monotonic() < until_s:
            time.sleep(0.05)
        seen.append(is_gone())
        return 0

    with patch.object(serving, "count", long):
        for waits_s in (60.0, 2.0):
            seen.clear()
            with contextlib.suppress(DeadlineExceeded):
                await asyncio.to_thread(cluster.proxy.count, cluster.node_query(), Patience(waits_s))
            assert seen[:2] == [False, waits_s < 60]
    assert client_of_thread() is None
