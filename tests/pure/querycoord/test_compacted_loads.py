"""A loaded collection whose segments are compacted: inputs and output change places in one version."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fakes import CID, DEFAULT, collection, compose, index, manifest, recovery
from query_bench import Bench

from elanus.api.recovery import RecoveryInfo
from elanus.core.ids import PartitionID, SegmentID
from elanus.core.segments import SegmentManifest
from elanus.core.timestamps import Timestamp

ONE = collection()
INPUTS = (manifest(1), manifest(2))
OUTPUT: SegmentManifest = replace(manifest(9), parents=(SegmentID(1), SegmentID(2)), deletes_from=compose(3))
COMPACTED: RecoveryInfo = replace(
    recovery(ONE, OUTPUT), successors={SegmentID(1): SegmentID(9), SegmentID(2): SegmentID(9)}
)


async def serving_inputs(*, indexed: bool) -> Bench:
    bench = Bench(ONE)
    if indexed:
        bench.index.defined.append(index())
        for segment in INPUTS:
            bench.add_file(segment)
    bench.set_data(recovery(ONE, *INPUTS))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 2}
    return bench


async def test_the_output_takes_the_inputs_place_in_one_version() -> None:
    bench = await serving_inputs(indexed=False)
    bench.set_data(COMPACTED)
    await asyncio.sleep(1)
    change = bench.node.calls.of("announce")[-1]
    assert (change.online, sorted(change.offline)) == ((9,), [1, 2])
    assert bench.node.served() == {9}
    assert await bench.percentages() == {DEFAULT: 100}
    await bench.coord.stop()


async def test_nodes_are_notified_of_segments_whose_rows_they_may_not_have_read_yet() -> None:
    """Of one that was never served: an input that was an output itself, or was flushed between two looks."""
    bench = await serving_inputs(indexed=False)
    ancestors = {**COMPACTED.successors, SegmentID(3): SegmentID(9), SegmentID(4): SegmentID(0)}
    bench.set_data(replace(COMPACTED, successors=ancestors))
    await asyncio.sleep(1)
    assert bench.node.calls.of("announce")[-1].elsewhere == (1, 2, 3)
    await bench.coord.stop()


async def test_the_inputs_serve_until_the_output_has_its_index() -> None:
    bench = await serving_inputs(indexed=True)
    versions = bench.node.held[CID].version
    bench.set_data(COMPACTED)
    await asyncio.sleep(1)
    assert (bench.node.served(), bench.node.held[CID].version) == ({1, 2}, versions)
    assert await bench.percentages() == {DEFAULT: 100}, "all that was loaded is served"
    bench.add_file(OUTPUT)
    await asyncio.sleep(1)
    assert bench.node.served() == {9}
    assert bench.node.indexes_of(9) == [90]
    await bench.coord.stop()


async def test_after_a_restart_of_the_node_the_output_is_loaded_without_its_index() -> None:
    bench = await serving_inputs(indexed=True)
    bench.set_data(COMPACTED)
    await asyncio.sleep(1)
    bench.node.restart()
    await asyncio.sleep(3)
    assert bench.node.served() == {9}
    await bench.coord.stop()


async def test_the_output_does_not_wait_for_a_node_that_began_to_follow_and_serves_nothing_yet() -> None:
    """Its inputs are neither sealed there nor growing; the version before named none of them."""
    bench = Bench(ONE)
    bench.set_data(recovery(ONE))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    bench.node.restart()
    bench.node.tick = compose(2)
    await bench.node.load_collection(bench.node.calls.of("load_collection")[0])
    await bench.node.watch_vchannel(bench.node.calls.of("watch_vchannel")[0])
    bench.set_data(COMPACTED)
    await asyncio.sleep(3)
    assert bench.node.served() == {9}
    await bench.coord.stop()


async def test_a_node_is_notified_of_partitions_whose_drop_is_not_done() -> None:
    bench = Bench(replace(ONE, leaving=(PartitionID(77),)))
    bench.set_data(recovery(ONE))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    assert {request.leaving for request in bench.node.calls.of("watch_vchannel")} == {(77,)}
    await bench.coord.stop()


async def test_the_output_waits_for_a_node_that_has_not_read_its_rows() -> None:
    bench = await serving_inputs(indexed=False)
    bench.node.tick = compose(4)
    bench.set_data(COMPACTED)
    await asyncio.sleep(1)
    assert bench.node.served() == {1, 2}
    bench.node.tick = Timestamp(2**62)
    await asyncio.sleep(1)
    assert bench.node.served() == {9}, "nobody announced the tick"
    await bench.coord.stop()


async def test_the_output_does_not_wait_for_what_a_failing_node_had_read() -> None:
    """The node starts again behind all flushed rows, and has released its growing ones."""
    bench = Bench(ONE)
    bench.set_data(recovery(ONE))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    bench.node.tick = compose(4)
    bench.node.failures = {ONE.vchannels[0]: "the log before it is gone"}
    bench.set_data(COMPACTED)
    await asyncio.sleep(1)
    assert bench.node.calls.of("give_up_vchannel") == [ONE.vchannels[0]]
    assert bench.node.served() == {9}
    await bench.coord.stop()


async def test_an_input_serves_on_though_the_answer_to_its_version_was_lost() -> None:
    """The node serves it, and the record of the last version does not name it yet."""
    bench = Bench(ONE)
    bench.index.defined.append(index())
    bench.add_file(INPUTS[0])
    bench.add_file(INPUTS[1])
    bench.set_data(recovery(ONE, INPUTS[0]))
    await bench.start()
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    bench.node.loses_answers = True
    bench.set_data(recovery(ONE, *INPUTS))
    await asyncio.sleep(0.2)
    assert bench.node.served() == {1, 2}
    bench.node.loses_answers = False
    bench.set_data(COMPACTED)
    await asyncio.sleep(2)
    assert bench.node.served() == {1, 2}, "the output waits for its index"
    bench.add_file(OUTPUT)
    await asyncio.sleep(1)
    assert bench.node.served() == {9}
    await bench.coord.stop()


async def test_what_a_node_serves_from_a_load_before_goes_offline() -> None:
    """The release did not reach the node; meanwhile its segments were compacted."""
    bench = await serving_inputs(indexed=False)
    held = bench.node.held[CID]
    await bench.coord.release(CID, ())
    bench.node.held[CID] = held
    bench.set_data(COMPACTED)
    await bench.coord.load(CID, (), 1)
    await asyncio.sleep(1)
    assert bench.node.served() == {9}
    await bench.coord.stop()
