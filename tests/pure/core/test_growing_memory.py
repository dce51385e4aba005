"""Which segments are sealed for memory: the largest, enough of them, none twice, and not in tiny pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elanus.core.growing_memory import GrowingMemory, in_flight_bytes, segments_to_seal
from elanus.core.ids import SegmentID

SOFT = 1000


def memory(*sizes: int, deletes: int = 0) -> GrowingMemory:
    """Segments 1, 2 and so on."""
    held = {SegmentID(number): size for number, size in enumerate(sizes, start=1)}
    return GrowingMemory(sum(sizes) + deletes, held)


def ids(*numbers: int) -> set[SegmentID]:
    return set(map(SegmentID, numbers))


def test_up_to_the_soft_limit_nothing_is_sealed() -> None:
    assert segments_to_seal(memory(600, 400), ids(1, 2), SOFT) == ()


def test_beyond_it_the_largest_are_until_half_of_it_is_left() -> None:
    assert segments_to_seal(memory(200, 400, 100, 301), ids(1, 2, 3, 4), SOFT) == (2, 4)


def test_what_is_sealed_already_counts_as_gone_and_is_not_sealed_again() -> None:
    held = memory(200, 400, 100, 301)
    assert segments_to_seal(held, ids(1, 3), SOFT) == ()
    assert in_flight_bytes(held, ids(1, 3)) == 701


def test_even_segments_that_are_far_from_full_are_sealed() -> None:
    assert len(segments_to_seal(memory(*[11] * 100), ids(*range(1, 101)), SOFT)) == 55


def test_deletes_lower_the_limit_but_never_to_where_segments_become_tiny() -> None:
    assert segments_to_seal(memory(300, 200, deletes=600), ids(1, 2), SOFT) == (1,)
    assert segments_to_seal(memory(200, 49, deletes=5000), ids(1, 2), SOFT) == ()
    assert segments_to_seal(memory(200, 51, deletes=5000), ids(1, 2), SOFT) == (1,)


@given(st.lists(st.integers(1, 300), max_size=30), st.sets(st.integers(1, 30)), st.integers(0, 2000))
def test_enough_is_sealed_and_never_more_than_needed(
    sizes: list[int], growing: set[int], deletes: int
) -> None:
    held = memory(*sizes, deletes=deletes)
    chosen = segments_to_seal(held, ids(*growing), SOFT)
    limit = max(SOFT - deletes, SOFT // 4)
    rest = held.total_bytes - deletes - in_flight_bytes(held, ids(*growing))
    left = rest - sum(held.segments[s] for s in chosen)
    assert left <= (limit if not chosen else limit // 2)
    assert set(chosen) <= ids(*growing)
    if chosen:
        assert left + held.segments[chosen[-1]] > limit // 2, "the last one was needed"
