"""Segments that move between query nodes of which one is slower than the others."""

from __future__ import annotations

from unittest.mock import patch

from node_world import COLLECTION, VCHANNEL
from test_node_fleet import Fleet, scenario

from elanus.api.query_channel import QueryChannelInfo, SealedSegmentsChangeInfo
from elanus.core.ids import NodeID
from elanus.querynode.serving import ChannelServing


@scenario
async def test_what_was_moved_away_from_a_node_that_reads_on_late_stays_where_it_is_now(fleet: Fleet) -> None:
    """The node still serves it, under the version before. That is no reason to take it from all."""
    first, second = await fleet.finish(1, 2), await fleet.finish(3, 4)
    takes, held = ChannelServing._take_version, []

    async def late(serving: ChannelServing, change: SealedSegmentsChangeInfo) -> None:
        if serving._node_id == laggard:
            held.append((serving, change))
        else:
            await takes(serving, change)

    async def info() -> QueryChannelInfo:
        (found,) = await fleet.coord.query_channels(COLLECTION)
        return found

    with patch("elanus.querycoord.moves.balance", lambda *_: []):
        await fleet.begin(1, 2)
        before = await info()
        leader = before.vchannels[VCHANNEL]
        laggard = NodeID(3 - leader)
        (moved,) = (s for s, n in before.sealed.items() if n == laggard)
        with patch.object(ChannelServing, "_take_version", late):
            await fleet.coord.load_balance(COLLECTION, laggard, (leader,), (moved,))

            async def is_moved() -> bool:
                return (await info()).sealed[moved] == leader

            await fleet.until(is_moved)
            third = await fleet.finish(5, 6)

            async def has_third() -> bool:
                return third in (await info()).sealed

            await fleet.until(has_third)
            assert (await info()).sealed.keys() == {first, second, third}
            assert held
        for serving, change in held:
            await takes(serving, change)
        await fleet.handed_off()
        await fleet.check()
    await fleet.end()
