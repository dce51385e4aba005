"""A collection gets a field: what was begun with the former schema is refused, and begun again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import Bench
from fakes import CID, collection, settle
from test_data_nodes import NOTIFIED_S, Member, epoch_of, join

from elanus.core.errors import CommitRefused, CoordinatorReplaced, Unavailable
from elanus.core.field_changes import with_added_field
from elanus.core.ids import FieldID, SegmentID
from elanus.core.schema import DataType, FieldSchema
from elanus.core.segments import SegmentState as S

NUMBER = FieldSchema(FieldID(0), "n", DataType.INT64, nullable=True)


async def test_the_owner_reads_again_with_the_new_schema_and_the_flush_with_the_old_one_is_refused(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, collection())
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    owner = await join(bench, 7)
    (vchannel,) = owner.owned()
    segment = await bench.write(10)
    await bench.coord.flush(CID)
    await owner.report(vchannel, segment)
    assert (await bench.segment(segment)).state is S.FLUSHING
    before, attempt = epoch_of(bench, vchannel), await owner.attempt()

    schema = with_added_field(bench.collections[0].schema, NUMBER)
    bench.root.collections[CID] = replace(bench.collections[0], becoming=schema)
    await bench.coord.change_schema(CID, schema)
    after = epoch_of(bench, vchannel)
    assert after != before
    assert (await bench.segment(segment)).state is S.SEALED, "to be flushed again"
    with pytest.raises(CommitRefused):
        await bench.commit({segment: 10}, [segment], vchannel=vchannel, epoch=before, attempt=attempt)
    assert (await bench.coord.recovery_info(CID)).schema == schema
    await settle()
    assert owner.node.following == {vchannel: after}

    await owner.report(vchannel, segment)
    await bench.commit(
        {segment: 10}, [segment], vchannel=vchannel, epoch=after, attempt=await owner.attempt()
    )
    assert (await bench.segment(segment)).state is S.FLUSHED
    await bench.coord.stop()


async def with_a_flush_of_an_owner_out_of_reach(tmp_path: Path) -> tuple[Bench, Member, str, SegmentID]:
    """The schema has changed, the owner cannot be reached with its new assignment, and has reported a
    segment that is to be flushed."""
    bench = Bench(tmp_path, collection())
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    owner = await join(bench, 7)
    (vchannel,) = owner.owned()
    segment = await bench.write(10)
    schema = with_added_field(bench.collections[0].schema, NUMBER)
    bench.root.collections[CID] = replace(bench.collections[0], becoming=schema)
    owner.node.calls.failing["unwatch_channels"] = Unavailable("not now")
    await bench.coord.change_schema(CID, schema)
    await bench.coord.flush(CID)
    await owner.report(vchannel, segment)
    return bench, owner, vchannel, segment


async def test_no_flush_is_ordered_of_an_owner_that_does_not_know_its_new_epoch(tmp_path: Path) -> None:
    """It would take the order for the epoch before, and forget it with that: the flush never ended."""
    bench, owner, vchannel, segment = await with_a_flush_of_an_owner_out_of_reach(tmp_path)
    assert (await bench.segment(segment)).state is S.FLUSHING
    assert owner.node.calls.of("flush_segments") == []
    owner.node.calls.failing.clear()
    await asyncio.sleep(NOTIFIED_S)
    assert owner.node.following == {vchannel: epoch_of(bench, vchannel)}
    assert [name for name, _ in owner.node.calls.of("report_soon")] == [vchannel]
    await owner.report(vchannel, segment)
    assert owner.node.calls.of("flush_segments") == [(vchannel, (segment,))]
    await bench.coord.stop()


async def test_the_report_is_asked_for_until_the_call_arrives(tmp_path: Path) -> None:
    bench, owner, vchannel, _ = await with_a_flush_of_an_owner_out_of_reach(tmp_path)
    owner.node.calls.failing["report_soon"] = Unavailable("the call was lost")
    del owner.node.calls.failing["unwatch_channels"]
    await asyncio.sleep(NOTIFIED_S)
    owner.node.calls.failing.clear()
    await asyncio.sleep(NOTIFIED_S)
    assert [name for name, _ in owner.node.calls.of("report_soon")][-1:] == [vchannel]
    await bench.coord.stop()


async def test_the_same_schema_again_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, collection())
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    await join(bench, 7)
    before = await bench.snapshot()
    await bench.coord.change_schema(CID, bench.collections[0].schema)
    assert await bench.snapshot() == before
    await bench.coord.stop()


async def test_a_change_that_arrives_after_a_later_one_is_refused(tmp_path: Path) -> None:
    """A rootcoord that was replaced amid its change goes on: rows with the later field would not fit."""
    bench = Bench(tmp_path, collection())
    await bench.start()
    await bench.coord.watch_channels(bench.collections[0])
    await join(bench, 7)
    first = with_added_field(bench.collections[0].schema, NUMBER)
    second = with_added_field(first, replace(NUMBER, name="m"))
    bench.root.collections[CID] = replace(bench.collections[0], schema=first, becoming=second)
    await bench.coord.change_schema(CID, second)
    before = await bench.snapshot()
    with pytest.raises(CoordinatorReplaced, match="this change of its schema is over"):
        await bench.coord.change_schema(CID, first)
    assert await bench.snapshot() == before
    assert (await bench.coord.recovery_info(CID)).schema == second
    await bench.coord.stop()
