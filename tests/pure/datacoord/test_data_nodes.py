"""Several data nodes: each owns a share of the vchannels, and nobody who lost one can commit to it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from data_bench import Bench, FakeImporter, FakeNode
from fakes import CID, OTHER, collection, settle

from elanus.api.datacoord import DataNodeTick
from elanus.core.channels import pchannel_of
from elanus.core.errors import CommitRefused, NodeReplaced, Unavailable
from elanus.core.ids import NO_NODE, CollectionID, NodeID, SegmentID
from elanus.core.segments import SegmentState
from elanus.meta.port import Compare, Delete, Put

S = SegmentState
NOTIFIED_S = 1.0
"""Within this time nodes have received their assignments."""


@dataclass(slots=True)
class Member:
    """A data node of the test, registered."""

    bench: Bench
    number: int
    node: FakeNode
    importer: FakeImporter
    epoch: int

    def leave(self) -> None:
        self.bench.data_nodes.leave(NodeID(self.number))

    async def report(self, vchannel: str, *segments: SegmentID) -> None:
        """It has followed the vchannel up to now, and seen ten rows of each segment."""
        at = (await self.bench.recovery(vchannel)).ts
        tick = DataNodeTick(vchannel, self.bench.root.stamp(), at, dict.fromkeys(segments, 10), 0)
        await self.bench.coord.report_ticks(self.epoch, (tick,))

    async def attempt(self) -> int:
        return await self.bench.coord.open_attempts(self.epoch, 1)

    def owned(self) -> set[str]:
        return {v for v, owner in owners(self.bench).items() if owner == self.number}


def owners(bench: Bench) -> dict[str, int]:
    return {v.vchannel: v.owner for v in bench.coord.context.state.vchannels()}


def epoch_of(bench: Bench, vchannel: str) -> int:
    known = bench.coord.context.state.vchannel(vchannel)
    assert known is not None
    return known.epoch


async def join(bench: Bench, number: int) -> Member:
    await bench.register(number)
    return Member(bench, number, bench.node, bench.importers[-1], bench.epoch)


async def two(tmp_path: Path, shards: int = 2) -> tuple[Bench, Member, Member]:
    """Datacoord with two data nodes, one of which came later."""
    bench = Bench(tmp_path, collection(shards=shards))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    nodes = bench, await join(bench, 7), await join(bench, 8)
    await settle()
    return nodes


async def test_a_newcomer_gets_half_and_the_other_releases_that_half(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path, shards=4)
    vchannels = set(bench.collections[0].vchannels)
    assert len(first.owned()) == len(second.owned()) == 2
    assert first.owned() | second.owned() == vchannels
    for node in (first, second):
        assert node.node.following == {v: epoch_of(bench, v) for v in node.owned()}
    assert first.node.calls.of("watch_channels") == []
    (left,) = first.node.calls.of("unwatch_channels")
    assert set(left) == second.owned()
    await bench.coord.stop()


async def test_what_a_former_owner_commits_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    former = await join(bench, 7)
    segments = {v: await bench.write(10, vchannel=v) for v in former.owned()}
    await bench.coord.flush(CID)
    for vchannel, segment in segments.items():
        await former.report(vchannel, segment)
        assert (await bench.segment(segment)).state is S.FLUSHING
    epochs = {v: epoch_of(bench, v) for v in former.owned()}
    attempt = await former.attempt()

    owner = await join(bench, 8)
    (moved,) = owner.owned()
    assert (await bench.segment(segments[moved])).state is S.SEALED
    before = await bench.snapshot()
    with pytest.raises(CommitRefused, match="owned by data node 8"):
        await bench.commit(
            {segments[moved]: 10}, [segments[moved]], vchannel=moved, epoch=epochs[moved], attempt=attempt
        )
    assert await bench.snapshot() == before
    with pytest.raises(CommitRefused, match="owned by data node 8"):
        await bench.coord.channel_dropped(epochs[moved], moved)
    await former.report(moved, segments[moved])
    assert await bench.snapshot() == before, "what it has seen of it nobody asks for"

    await owner.report(moved, segments[moved])
    assert owner.node.calls.of("flush_segments") == [(moved, (segments[moved],))]
    await bench.commit(
        {segments[moved]: 10},
        [segments[moved]],
        vchannel=moved,
        epoch=epoch_of(bench, moved),
        attempt=await owner.attempt(),
    )
    assert (await bench.segment(segments[moved])).state is S.FLUSHED
    await bench.coord.stop()


async def test_what_stays_with_a_node_goes_on_while_the_rest_moves(tmp_path: Path) -> None:
    """A flush under way of a vchannel that did not move ends as if nothing had happened."""
    bench = Bench(tmp_path, collection(shards=2))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    node = await join(bench, 7)
    segments = {v: await bench.write(10, vchannel=v) for v in node.owned()}
    await bench.coord.flush(CID)
    for vchannel, segment in segments.items():
        await node.report(vchannel, segment)
    epochs, attempt = {v: epoch_of(bench, v) for v in node.owned()}, await node.attempt()
    await join(bench, 8)
    (kept,) = node.owned()
    await bench.commit(
        {segments[kept]: 10}, [segments[kept]], vchannel=kept, epoch=epochs[kept], attempt=attempt
    )
    assert (await bench.segment(segments[kept])).state is S.FLUSHED
    await bench.coord.stop()


async def test_a_node_that_dies_amid_a_flush_is_followed_by_the_other(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path)
    (vchannel,) = first.owned()
    segment = await bench.write(10, vchannel=vchannel)
    await bench.coord.flush(CID)
    await first.report(vchannel, segment)
    old, attempt = epoch_of(bench, vchannel), await first.attempt()

    first.leave()
    await settle()
    assert second.owned() == set(bench.collections[0].vchannels)
    assert second.node.following == {v: epoch_of(bench, v) for v in second.owned()}
    assert (await bench.segment(segment)).state is S.SEALED
    with pytest.raises(CommitRefused):
        await bench.commit({segment: 10}, [segment], vchannel=vchannel, epoch=old, attempt=attempt)
    with pytest.raises(CommitRefused, match="register again"):
        await first.report(vchannel, segment)
    with pytest.raises(CommitRefused, match="register again"):
        await first.attempt()
    await second.report(vchannel, segment)
    assert second.node.calls.of("flush_segments") == [(vchannel, (segment,))]
    await bench.coord.stop()


@pytest.mark.parametrize("leaves", [True, False], ids=["its owner has gone", "a newcomer takes it"])
async def test_an_order_that_is_answered_while_its_vchannel_moves_is_given_again(
    tmp_path: Path, leaves: bool
) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    first = await join(bench, 7)
    if leaves:
        second = await join(bench, 8)
    segments = {v: await bench.write(10, vchannel=v) for v in first.owned()}
    await bench.coord.flush(CID)
    answer, persist, txn = asyncio.Event(), asyncio.Event(), bench.meta.txn

    async def takes(*_order: object) -> None:
        await answer.wait()

    async def slowly(operations: Sequence[Put | Delete], compares: Sequence[Compare] = ()) -> int:
        await persist.wait()
        return await txn(operations, compares)

    first.node.flush_segments = takes  # type: ignore[method-assign]
    reports = [asyncio.ensure_future(first.report(v, segment)) for v, segment in segments.items()]
    await settle()
    bench.meta.txn = slowly  # type: ignore[method-assign]
    if leaves:
        first.leave()
    else:
        joining = asyncio.ensure_future(join(bench, 8))
    await settle()
    answer.set()
    await asyncio.gather(*reports)
    persist.set()
    await settle()
    if not leaves:
        second = await joining
    (moved,) = segments.keys() & second.owned()
    await second.report(moved, segments[moved])
    assert second.node.calls.of("flush_segments") == [(moved, (segments[moved],))]
    await bench.coord.stop()


async def test_without_the_last_node_nothing_can_be_committed_until_the_next_one_comes(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    last = await join(bench, 7)
    epoch, attempt = epoch_of(bench, bench.vchannel), await last.attempt()
    segment = await bench.write(10)
    last.leave()
    await settle()
    with pytest.raises(CommitRefused, match="register again"):
        await bench.commit({segment: 10}, epoch=epoch, attempt=attempt)
    with pytest.raises(CommitRefused, match="register again"):
        await bench.commit(epoch=epoch, attempt=0)
    following = await join(bench, 8)
    assert following.owned() == set(bench.collections[0].vchannels)
    assert epoch_of(bench, bench.vchannel) == following.epoch > epoch
    await bench.coord.stop()


async def test_a_node_without_a_session_or_with_a_successor_at_its_address_must_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.watched()
    with pytest.raises(NodeReplaced, match="data node 5"):
        await bench.coord.register_datanode(NodeID(5))
    bench.join(10, bench.node.address)
    with pytest.raises(NodeReplaced, match="data node 9"):
        await bench.coord.register_datanode(NodeID(9))
    await settle()
    with pytest.raises(CommitRefused, match="register again"):
        await bench.coord.report_ticks(bench.epoch, ())
    registration = await bench.coord.register_datanode(NodeID(10))
    assert [c.vchannel for c in registration.channels] == [bench.vchannel]
    await bench.coord.stop()


async def test_a_session_that_has_just_begun_counts(tmp_path: Path) -> None:
    """The view of sessions is a little behind: a registration is not refused for that."""
    bench = Bench(tmp_path)
    await bench.watched()
    bench.join(4)
    bench.data_nodes.registered[NodeID(4)] = bench.data_nodes.nodes.pop(NodeID(4))
    assert (await bench.coord.register_datanode(NodeID(4))).epoch
    bench.data_nodes.calls.failing["refresh"] = Unavailable("the metadata is away")
    with pytest.raises(Unavailable):
        await bench.coord.register_datanode(NodeID(4))
    await bench.coord.stop()


async def test_a_node_that_registers_again_keeps_its_share_under_a_new_epoch(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path, shards=4)
    share, others = first.owned(), {v: epoch_of(bench, v) for v in second.owned()}
    old = {v: epoch_of(bench, v) for v in share}
    attempts = await first.attempt(), await second.attempt()
    again = await join(bench, 7)
    assert again.owned() == share
    assert all(epoch_of(bench, v) == again.epoch > old[v] for v in share)
    assert {v: epoch_of(bench, v) for v in second.owned()} == others
    bench.coord.context.attempts.check(attempts[1])
    with pytest.raises(CommitRefused):
        bench.coord.context.attempts.check(attempts[0])
    await bench.coord.stop()


async def test_owners_outlive_the_coordinator(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path, shards=4)
    before = owners(bench)
    (old, attempt), vchannel = (epoch_of(bench, bench.vchannel), await first.attempt()), bench.vchannel
    await bench.restart()
    assert owners(bench) == before
    with pytest.raises(CommitRefused, match="register again"):
        await bench.commit(vchannel=vchannel, epoch=old, attempt=attempt)
    await join(bench, 8)
    assert owners(bench) == before, "the other one lives, and will register again"
    await bench.commit(vchannel=min(second.owned()), epoch=bench.epoch)
    await join(bench, 7)
    assert owners(bench) == before
    await bench.restart()
    first.leave()
    last = await join(bench, 8)
    assert last.owned() == set(before), "it is gone, and will not"
    await bench.coord.stop()


async def test_a_new_collection_is_followed_by_who_follows_its_pchannels(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path, shards=2)
    third = collection(collection_id=OTHER, shards=3)
    bench.root.collections[OTHER] = third
    await bench.coord.watch_channels(third)
    await settle()
    owned = owners(bench)
    for vchannel in bench.collections[0].vchannels:
        (sibling,) = (v for v in third.vchannels if pchannel_of(v) == pchannel_of(vchannel))
        assert owned[sibling] == owned[vchannel]
    for node in (first, second):
        assert node.node.following == {v: epoch_of(bench, v) for v in node.owned()}
    assert NO_NODE not in owned.values()
    await bench.coord.stop()


async def test_channel_owners_names_the_owner_of_each_live_vchannel(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path)
    owners = await bench.coord.channel_owners()
    assert owners == dict.fromkeys(first.owned(), 7) | dict.fromkeys(second.owned(), 8)
    (vchannel,) = first.owned()
    await bench.coord.drop_collection(CID)
    await bench.coord.channel_dropped(epoch_of(bench, vchannel), vchannel)
    assert await bench.coord.channel_owners() == dict.fromkeys(second.owned(), 8)
    await bench.coord.stop()


async def test_an_unreachable_node_gets_its_assignment_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=2))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    first = await join(bench, 7)
    first.node.calls.failing["unwatch_channels"] = Unavailable("not now")
    await join(bench, 8)
    await settle()
    assert len(first.node.following) == 2
    first.node.calls.failing.clear()
    await asyncio.sleep(NOTIFIED_S)
    assert first.node.following.keys() == first.owned()
    await bench.coord.stop()


async def test_a_dropped_vchannel_is_released_without_an_order(tmp_path: Path) -> None:
    bench, first, _ = await two(tmp_path)
    (vchannel,) = first.owned()
    await bench.coord.drop_collection(CID)
    await bench.coord.channel_dropped(epoch_of(bench, vchannel), vchannel)
    await settle()
    assert len(first.node.calls.of("unwatch_channels")) == 1, "of the one that it left for the newcomer"
    await bench.coord.stop()


async def test_a_snapshot_asks_the_owner_of_each_vchannel(tmp_path: Path) -> None:
    bench, first, second = await two(tmp_path)
    at_least = bench.root.stamp()
    for node in (first, second):
        (vchannel,) = node.owned()
        assert not await bench.coord.role._datanodes.order_range(vchannel, at_least)
        await node.report(vchannel)
        assert await bench.coord.role._datanodes.order_range(vchannel, at_least)
        assert node.node.calls.of("sync") == [(vchannel, ())]
        assert [reason.cause for reason in node.node.reasons] == ["snapshot"], "as `elanus jobs` shows it"
    (moved,) = first.owned()
    first.leave()
    await settle()
    assert not await bench.coord.role._datanodes.order_range(moved, at_least), (
        "its new owner has seen nothing of it yet"
    )
    await second.report(moved)
    assert await bench.coord.role._datanodes.order_range(moved, at_least)
    assert second.node.calls.of("sync")[-1] == (moved, ())
    await bench.coord.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_comes_and_goes_each_vchannel_has_one_owner_who_knows(
    tmp_path: Path, seed: int
) -> None:
    """Nodes join, leave, register again, collections come, the coordinator restarts."""
    draw = random.Random(seed)
    bench = Bench(tmp_path, collection(shards=3))
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    members: dict[int, Member] = {}
    epochs: Counter[str] = Counter()
    for step in range(40):
        match draw.choice(("join", "join", "leave", "again", "collection", "restart")):
            case "join" if len(members) < 5:
                members[step] = await join(bench, 100 + step)
            case "leave" if members:
                members.pop(draw.choice(sorted(members))).leave()
            case "again" if members:
                number = draw.choice(sorted(members))
                members[number] = await join(bench, 100 + number)
            case "collection":
                new = collection(collection_id=CollectionID(1000 + step), shards=draw.randint(1, 4))
                bench.root.collections[new.collection_id] = new
                await bench.coord.watch_channels(new)
            case "restart":
                await bench.restart()
                for number in members:
                    members[number] = await join(bench, 100 + number)
        await settle()
        _judge(bench, members, epochs)
    await bench.coord.stop()


def _judge(bench: Bench, members: dict[int, Member], epochs: Counter[str]) -> None:
    owned = owners(bench)
    if members:
        assert set(owned.values()) <= {m.number for m in members.values()}
        for member in members.values():
            assert member.node.following == {v: epoch_of(bench, v) for v in member.owned()}
        for pchannel in {pchannel_of(v) for v in owned}:
            assert len({o for v, o in owned.items() if pchannel_of(v) == pchannel}) == 1
    for vchannel in owned:
        assert epoch_of(bench, vchannel) >= epochs[vchannel], "epochs never go back"
        epochs[vchannel] = epoch_of(bench, vchannel)


async def test_a_report_is_answered_with_the_vchannels_that_have_something_to_flush(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection(shards=3))
    coord = await bench.watched()
    idle, sealed, deleted = bench.collections[0].vchannels
    assert await coord.report_ticks(bench.epoch, ()) == ()
    segment_id = await bench.write(10, vchannel=sealed)
    assert await coord.report_ticks(bench.epoch, ()) == (), "it grows"
    outcome = await coord.flush(CID)
    assert outcome.sealed == (segment_id,)
    asked = await coord.report_ticks(bench.epoch, ())
    assert asked[0] == sealed
    assert set(asked) == {idle, sealed, deleted}, "deletes may be waiting in any of them"
    for name in (idle, deleted):
        await bench.report(vchannel=name)
    assert await coord.report_ticks(bench.epoch, ()) == (sealed,), "nothing is waiting in the others"
    await bench.report({segment_id: 10}, vchannel=sealed)
    await bench.commit({segment_id: 10}, flushed=(segment_id,), vchannel=sealed)
    await bench.report(vchannel=sealed)
    assert await coord.report_ticks(bench.epoch, ()) == ()
    await coord.stop()


async def test_a_tick_that_a_range_waits_for_is_asked_of_the_owner(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    nodes, ts = coord.role._datanodes, bench.root.stamp()
    for _ in range(3):
        assert not await nodes.order_range(bench.vchannel, ts)
        await settle()
    assert bench.node.calls.of("report_soon") == [(bench.vchannel, ts)], "asked once"
    assert await coord.report_ticks(bench.epoch, ()) == (bench.vchannel,)
    await bench.report()
    assert await coord.report_ticks(bench.epoch, ()) == ()
    assert await nodes.order_range(bench.vchannel, ts)
    await coord.stop()


async def test_a_tick_is_reported_although_the_order_for_it_was_lost(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    coord = await bench.watched()
    bench.node.calls.failing["report_soon"] = Unavailable("the call was lost")
    nodes, ts = coord.role._datanodes, bench.root.stamp()
    assert not await nodes.order_range(bench.vchannel, ts)
    await settle()
    assert await coord.report_ticks(bench.epoch, ()) == (bench.vchannel,)
    await coord.stop()
