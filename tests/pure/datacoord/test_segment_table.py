"""The indexes of the segment table hold what a search through all records finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elanus.core.gc import keeps_files
from elanus.core.ids import CollectionID, PartitionID, SegmentID
from elanus.core.segments import SegmentInfo, SegmentState
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.datacoord.segment_table import SegmentTable

S = SegmentState
STATES = (S.GROWING, S.SEALED, S.FLUSHING, S.FLUSHED, S.DROPPED)


class Uses:
    def __init__(self) -> None:
        self.paths: set[str] = set()

    def use(self, path: str) -> None:
        assert path not in self.paths
        self.paths.add(path)

    def forget(self, path: str) -> None:
        self.paths.remove(path)


def record(number: int, state: SegmentState, version: int) -> SegmentInfo:
    """A segment of one of two collections, partitions and vchannels, by its number."""
    return SegmentInfo(
        SegmentID(number),
        CollectionID(number % 2),
        PartitionID(number // 2 % 2),
        f"v{number // 4 % 2}",
        state,
        max_rows=10,
        created=NO_TIMESTAMP,
        last_expire=NO_TIMESTAMP,
        manifest=f"m{number}-{version}" if version else "",
        size_bytes=100 * version + number,
    )


steps = st.one_of(
    st.tuples(st.integers(1, 12), st.sampled_from(STATES), st.integers(0, 2)),
    st.tuples(st.integers(1, 12), st.none(), st.none()),
)


@given(st.lists(steps, max_size=60))
def test_every_look_up_agrees_with_a_search_through_all(made: list[tuple[int, SegmentState, int]]) -> None:
    uses = Uses()
    table, known = SegmentTable(uses), dict[SegmentID, SegmentInfo]()
    for number, state, version in made:
        if state is None:
            table.forget(SegmentID(number))
            known.pop(SegmentID(number), None)
        else:
            info = record(number, state, version)
            table.show(info)
            known[info.segment_id] = info
    assert {s.segment_id: s for s in table.all()} == known

    def ids(found: list[SegmentInfo]) -> set[int]:
        assert all(table.find(s.segment_id) is s for s in found)
        return {s.segment_id for s in found}

    for n in range(2):
        assert ids(table.of_collection(CollectionID(n))) == {i for i in known if i % 2 == n}
        assert ids(table.on_vchannel(f"v{n}")) == {i for i in known if i // 4 % 2 == n}
        assert ids(table.unflushed_on(f"v{n}")) == {
            i for i, s in known.items() if s.state < S.DROPPED and s.state != S.FLUSHED and i // 4 % 2 == n
        }
    sizes = Counter[CollectionID]()
    for info in known.values():
        sizes[info.collection_id] += 0 if info.state is S.DROPPED else info.size_bytes
    assert table.stored_bytes() == sizes.total()
    assert [table.stored_bytes([CollectionID(n)]) for n in range(2)] == [
        sizes[CollectionID(n)] for n in range(2)
    ]
    assert table.dropped_bytes == sum(s.size_bytes for s in known.values() if keeps_files(s))
    assert table.states() == Counter(s.state for s in known.values())
    assert ids(table.dropped()) == {i for i, s in known.items() if s.state is S.DROPPED}
    for n in range(2):
        on_vchannel = {i for i, s in known.items() if s.state is S.DROPPED and i // 4 % 2 == n}
        assert ids(table.dropped_on(f"v{n}")) == on_vchannel
    everything = [SegmentID(number) for number in range(1, 14)]
    assert table.gone(everything) == [s for s in everything if s not in known or known[s].state is S.DROPPED]
    assert ids(table.unflushed()) == {
        i for i, s in known.items() if s.state < S.DROPPED and s.state != S.FLUSHED
    }
    growing = {i for i, s in known.items() if s.state is S.GROWING}
    rooms = [(c, p, v) for c in range(2) for p in range(2) for v in range(2)]
    for c, p, v in rooms:
        wanted = {i for i in growing if (i % 2, i // 2 % 2, i // 4 % 2) == (c, p, v)}
        assert ids(table.growing(CollectionID(c), PartitionID(p), f"v{v}")) == wanted
    assert uses.paths == {s.manifest for s in known.values() if s.manifest and s.state is not S.DROPPED}
    for number in range(1, 13):
        table.forget(SegmentID(number))
    assert uses.paths == set()
    assert not table.states()
    kept = ("_uses", "_changes", "_states")
    assert not any(value for name, value in vars(table).items() if name not in kept), "nothing is left"


def test_the_successor_of_a_segment_is_the_last_of_the_line() -> None:
    table = SegmentTable(Uses())
    first, second, third = (record(n, S.FLUSHED, 1) for n in (1, 3, 5))
    table.show(replace(first, state=S.DROPPED))
    table.show(replace(second, state=S.DROPPED, compacted_from=(first.segment_id,)))
    table.show(replace(third, compacted_from=(second.segment_id,)))
    found = table.successors_of([s.segment_id for s in (first, second, third)])
    assert found == {first.segment_id: (5,), second.segment_id: (5,), third.segment_id: ()}


def test_a_segment_that_was_cut_into_clusters_has_all_of_them_as_successors() -> None:
    table = SegmentTable(Uses())
    first, second = (record(n, S.FLUSHED, 1) for n in (1, 3))
    clusters = [
        replace(record(n, S.FLUSHED, 1), compacted_from=(SegmentID(1), SegmentID(3))) for n in (5, 7, 9)
    ]
    for info in (replace(first, state=S.DROPPED), replace(second, state=S.DROPPED), *clusters):
        table.show(info)
    assert table.successors_of([first.segment_id]) == {first.segment_id: (5, 7, 9)}
    later = replace(record(11, S.FLUSHED, 1), compacted_from=(SegmentID(7),))
    table.show(replace(clusters[1], state=S.DROPPED))
    table.show(later)
    table.show(replace(clusters[2], state=S.DROPPED))
    found = table.successors_of([second.segment_id, SegmentID(7), SegmentID(9)])
    assert found == {second.segment_id: (5, 11), 7: (11,), 9: ()}, "9 has no row left"
    assert table.descendants((first.segment_id,)) == {5, 7, 9, 11}
    for number in (1, 3, 5, 7, 9, 11):
        table.forget(SegmentID(number))
    assert table._made == {}
