"""Key filters: no block that holds a deleted key is skipped, and few others are visited."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_world import COLLECTION, VCHANNEL, World, scenario
from test_big_deletes import ONE, batch_of, block_of, dead

from elanus.querynode import key_filters
from elanus.querynode.block import Block
from elanus.querynode.key_filters import FilterPages, filter_of
from elanus.querynode.key_ranges import KeyRanges

Keys = npt.NDArray[np.int64]


def random_blocks(blocks: int, rows: int) -> list[Keys]:
    return list(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, (blocks, rows)))


def ranges_of(blocks: list[Block]) -> KeyRanges:
    ranges = KeyRanges()
    for block in blocks:
        block.make_key_filter()
        ranges.add(block, ONE, block.take_key_filter())
    return ranges


def test_few_random_keys_visit_few_blocks() -> None:
    keys = random_blocks(200, 300)
    blocks = [block_of(part) for part in keys]
    ranges = ranges_of(blocks)
    wanted = [7, 70, 170]
    visits = ranges.visits(batch_of([int(keys[number][0]) for number in wanted]))
    assert set(map(id, visits.blocks)) >= {id(blocks[number]) for number in wanted}
    assert len(visits) <= 3 + 30, "each of three keys is taken for one of about 90 other blocks' keys"
    visits.run(0, len(visits))
    assert [number for number, block in enumerate(blocks) if dead(block)] == wanted


def test_few_of_other_keys_are_taken_for_those_of_a_block() -> None:
    here, other = random_blocks(2, 20_000)
    pages = FilterPages()
    words = filter_of(here)
    page, first = pages.add(words)
    one, begin = np.ones(len(other), dtype=np.int64), np.arange(len(other))
    for keys, share_min, share_max in ((here, 1.0, 1.0), (other, 0.002, 0.02)):
        found = pages.may_hold(page, one * first, one * len(words), keys, begin, begin + 1)
        assert share_min <= found.mean() <= share_max


@pytest.mark.parametrize("limit", ["PROBES_MAX", "KEYS_MAX"])
def test_filters_are_not_asked_for_many_keys(limit: str) -> None:
    keys = random_blocks(50, 100)
    ranges = ranges_of([block_of(part) for part in keys])
    batch = batch_of([int(part[0]) for part in keys[:3]])
    assert len(ranges.visits(batch)) < 25
    with patch.object(key_filters, limit, 2), patch.object(FilterPages, "may_hold") as asked:
        assert len(ranges.visits(batch)) == 50
    asked.assert_not_called()


keys_of_blocks = st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=8), min_size=1, max_size=12)


@given(keys_of_blocks, st.lists(st.integers(-50, 50), max_size=12), st.data())
def test_visits_delete_what_visiting_everything_would(
    keys: list[list[int]], deleted: list[int], data: st.DataObject
) -> None:
    """Also when filters move from page to page, and when some blocks have none."""
    blocks = [block_of(part) for part in keys]
    gone = data.draw(st.lists(st.sampled_from(range(len(blocks))), unique=True))
    ranges = KeyRanges()
    with patch.object(key_filters, "PAGE_WORDS", data.draw(st.integers(1, 6))):
        for block in blocks:
            if data.draw(st.booleans()):
                block.make_key_filter()
            ranges.add(block, ONE, block.take_key_filter())
        split = data.draw(st.integers(0, len(gone)))
        for some in (gone[:split], gone[split:]):
            ranges.remove([blocks[number] for number in some])
    visits = ranges.visits(batch_of(deleted))
    visits.run(0, len(visits))
    for number, block in enumerate(blocks):
        expected = [] if number in gone else sorted(k for k in keys[number] if k in deleted)
        assert dead(block) == expected


def test_pages_of_blocks_that_are_gone_are_given_up() -> None:
    """After many blocks have come and gone, the pages hold a few times what is left."""
    ranges, rows = KeyRanges(), 640
    left: list[Block] = []
    with patch.object(key_filters, "PAGE_WORDS", 10 * len(filter_of(np.arange(rows)))):
        for number in range(300):
            block = block_of(range(number * rows, (number + 1) * rows))
            block.make_key_filter()
            ranges.add(block, ONE, block.take_key_filter())
            left.append(block)
            if number % 10:
                ranges.remove([left.pop(0)])
    pages = ranges._filters
    assert len(left) == 30
    assert sum(pages._alive.values()) == 30 * len(filter_of(np.arange(rows)))
    assert len(pages._pages) <= 1 + 4 * 30 // 10
    for block in left:
        key = int(block.keys.codes[5])
        assert block in list(ranges.visits(batch_of([key])).blocks)


@scenario()
async def test_loaded_segments_have_filters(world: World) -> None:
    for number in range(40):
        await world.insert([(number + 1000 * row, row) for row in range(20)])
        await world.tick()
        world.seal()
        await world.hand_off([world.flush()[0]])
    collection = world.node._collections[COLLECTION]
    visits = collection._held.concerned(VCHANNEL, [batch_of([5003])])
    assert len(visits[0]) < 20, "each segment has a key below and a key above"
    await world.delete([3, 5003, 5004])
    await world.tick()
    assert not {3, 5003, 5004} & set(world.keys())
    assert world.count() == 800 - 3
