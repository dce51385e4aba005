"""Leases: the holder stops believing before the store lets go; who stands still together loses nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elanus.core.lease import DRIFT, GAP_MAX_S, HeldLease, LeaseTable


def test_a_holder_counts_from_the_moment_it_sent_the_renewal() -> None:
    held = HeldLease(5.0, 100.0)
    assert held.is_valid(104.8)
    assert not held.is_valid(105.0)
    held.renewed(103.0)  # the answer may have come much later
    assert held.is_valid(107.8)
    assert not held.is_valid(108.0)
    held.renewed(101.0)  # an answer that was overtaken takes nothing away
    assert held.is_valid(107.8)


def test_a_holder_renews_often_enough_to_survive_two_failures() -> None:
    assert 3 * HeldLease(6.0, 0.0).renew_every_s <= 6.0


def test_a_table_ends_what_is_not_renewed_and_names_its_keys() -> None:
    table = LeaseTable(0.0)
    one, other = table.grant(1.0, 0.0), table.grant(1.0, 0.0)
    table.bind("a", one)
    table.bind("b", one)
    table.bind("c", other)
    table.bind("b", other)
    assert table.over(0.5) == ()
    assert table.renew(other, 0.6) == 1.0
    assert table.over(1.0) == (one,)
    assert table.keys(one) == ("a",)
    table.end(one)
    assert table.renew(one, 1.0) is None
    assert one not in table
    assert table.keys(other) == ("b", "c")
    table.unbind("c")
    table.bind("b", 0)
    assert table.keys(other) == ()


def test_a_standstill_of_everybody_ends_no_lease() -> None:
    """A laptop sleeps for a night; at dawn the holder has its turn before its lease is over."""
    table = LeaseTable(0.0)
    lease = table.grant(5.0, 0.0)
    assert table.over(0.2) == ()
    assert table.over(30_000.0) == ()
    assert table.renew(lease, 30_000.1) == 5.0


def test_a_clock_that_goes_back_ends_no_lease_and_keeps_none() -> None:
    table = LeaseTable(100.0)
    lease = table.grant(1.0, 100.0)
    assert table.over(50.0) == ()
    assert table.over(100.4) == ()
    assert table.over(100.8) == ()
    assert table.over(101.1) == (lease,)


@given(
    st.lists(st.floats(0.01, 3.0), min_size=1, max_size=60),
    st.integers(1, 10),
    st.floats(1 - DRIFT / 2, 1 + DRIFT / 2),
    st.data(),
)
def test_the_holder_never_believes_in_a_lease_that_the_table_has_ended(
    steps_s: list[float], ttl_s: int, rate: float, data: st.DataObject
) -> None:
    """With any pauses, and with clocks that run at different speeds."""
    table, now_s = LeaseTable(0.0), 0.0
    held, lease = HeldLease(ttl_s, 0.0), table.grant(ttl_s, 0.0)
    sent_s: float | None = None
    for step_s in steps_s:
        now_s += step_s
        for ended in table.over(now_s * rate):
            table.end(ended)
        if lease not in table:
            assert not held.is_valid(now_s)
            return
        match data.draw(st.sampled_from(["wait", "send", "take"])):
            case "send":
                sent_s = now_s
            case "take" if sent_s is not None:
                assert table.renew(lease, now_s * rate) is not None
                held.renewed(sent_s)


def test_a_table_must_be_looked_at_more_often_than_its_gap() -> None:
    table = LeaseTable(0.0)
    lease = table.grant(2.0, 0.0)
    looks = [GAP_MAX_S * n for n in range(1, 5)]
    assert [table.over(now_s) for now_s in looks] == [(), (), (), (lease,)]
