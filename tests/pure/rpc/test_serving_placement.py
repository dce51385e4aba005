"""Which kinds of calls run in the reading thread."""

from __future__ import annotations

from elanus.rpc.serving.placement import Placement, short_s

KIND = ("Search", "books")


def known(busy_s: float) -> Placement:
    placement = Placement(short_s=0.001)
    placement.ran(KIND, busy_s, held_up=False)
    return placement


def tries_until_short(placement: Placement) -> int:
    """How many calls in a row go to the pool first."""
    return next(n for n in range(5000) if placement.is_short(KIND))


def test_a_kind_that_is_not_known_is_measured_in_the_pool_first() -> None:
    placement = Placement()
    assert not placement.is_short(KIND)
    placement.ran(KIND, 0.0001, held_up=False)
    assert placement.is_short(KIND)
    assert not placement.is_short(("Search", "films"))


def test_longer_calls_are_short_where_the_clients_need_the_other_processor() -> None:
    call_s = 0.0015
    placements = {processors: Placement(short_s(processors)) for processors in (1, 2, 4, 64)}
    for placement in placements.values():
        placement.ran(KIND, call_s, held_up=False)
    assert [placements[n].is_short(KIND) for n in (1, 2, 4, 64)] == [True, True, False, False]


def test_a_long_kind_stays_in_the_pool_until_its_calls_become_short() -> None:
    placement = known(0.1)
    assert not placement.is_short(KIND)
    rounds = 0
    while not placement.is_short(KIND):
        placement.ran(KIND, 0.0001, held_up=False)
        rounds += 1
    assert 10 < rounds < 30


def test_one_long_call_among_short_ones_moves_its_kind_for_a_few_calls() -> None:
    placement = known(0.0002)
    placement.ran(KIND, 0.01, held_up=False)
    assert not placement.is_short(KIND)
    for _ in range(10):
        placement.ran(KIND, 0.0002, held_up=False)
    assert placement.is_short(KIND)


def test_a_kind_that_waits_is_tried_again_after_ever_more_calls() -> None:
    placement = known(0.0001)
    waits = []
    for _ in range(9):
        placement.ran(KIND, 0.0001, held_up=True)
        waits.append(tries_until_short(placement))
    assert waits == [16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_a_rare_hold_up_is_forgotten() -> None:
    placement = known(0.0001)
    placement.ran(KIND, 0.0001, held_up=True)
    tries_until_short(placement)
    for _ in range(16):
        placement.ran(KIND, 0.0001, held_up=False)
    placement.ran(KIND, 0.0001, held_up=True)
    assert tries_until_short(placement) == 16


def test_measures_of_calls_in_the_pool_do_not_shorten_the_time_away() -> None:
    placement = known(0.0001)
    placement.ran(KIND, 0.0001, held_up=True)
    for _ in range(8):
        assert not placement.is_short(KIND)
        placement.ran(KIND, 0.0001, held_up=False)
    assert tries_until_short(placement) == 8


def test_kinds_made_up_by_clients_do_not_grow_the_table() -> None:
    placement = Placement(kinds_max=3)
    for number in range(4):
        placement.ran(number, 0.0, held_up=False)
    assert [placement.is_short(number) for number in range(4)] == [False, False, False, True]
