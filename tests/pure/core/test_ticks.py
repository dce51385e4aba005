"""A tick of T is written only when nothing at or below T can follow, and never goes back."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elanus.core.ids import NodeID
from elanus.core.ticks import NO_NODE, TickBarrier, UnfinishedWrites, WrittenLately, tick_report
from elanus.core.timestamps import Timestamp, compose

A, B = "dml_0", "dml_1"
ONE, TWO = NodeID(1), NodeID(2)


def ts(number: int) -> Timestamp:
    return Timestamp(number)


# the proxy's side


def test_a_report_is_strictly_below_the_oldest_unfinished_write() -> None:
    writes = UnfinishedWrites()
    writes.add(ts(50), (A,))
    writes.add(ts(60), (A, B))
    assert tick_report(ts(70), writes.oldest()) == (70, {A: 49, B: 59})


def test_a_pchannel_without_unfinished_writes_is_reported_up_to_now() -> None:
    writes = UnfinishedWrites()
    writes.add(ts(50), (A, B))
    writes.remove(ts(50), (A, B))
    assert tick_report(ts(70), writes.oldest()) == (70, {})


def test_a_report_never_says_more_than_when_it_was_stamped() -> None:
    assert tick_report(ts(70), {A: ts(75)}) == (70, {A: 70}), "a write stamped after the report"


def test_writes_that_end_out_of_order_hold_the_report_until_the_oldest_has_ended() -> None:
    writes = UnfinishedWrites()
    for number in (50, 60, 70):
        writes.add(ts(number), (A,))
    seen = []
    for number in (60, 50, 70):
        seen.append(dict(writes.oldest()))
        writes.remove(ts(number), (A,))
    assert seen == [{A: 50}, {A: 50}, {A: 70}]
    assert writes.oldest() == {}


# the root coordinator's side


def barrier(*reported: int) -> TickBarrier:
    found = TickBarrier()
    for number, report in enumerate(reported, start=1):
        found.join(NodeID(number))
        found.report(NodeID(number), ts(report), {})
    return found


def test_the_source_that_bounds_a_tick_is_known() -> None:
    found = barrier(50, 70)
    assert found.holder(A) == NodeID(1)
    found.report(NodeID(1), ts(90), {B: ts(60)})
    assert (found.holder(A), found.holder(B)) == (TWO, NodeID(1))
    found.begin_ddl(ts(55), [A])
    assert found.holder(A) == NO_NODE, "the root coordinator's own definition"
    found.join(NodeID(3))
    assert found.holder(A) == NodeID(3), "it has not reported"
    assert TickBarrier().holder(A) == NO_NODE


def test_a_proxy_that_has_reported_past_the_wanted_tick_holds_nothing_back() -> None:
    found = barrier(50, 70)
    found.join(NodeID(3))
    assert [found.keeps_back(NodeID(n), (A,), ts(60)) for n in (1, 2, 3)] == [True, False, True]
    found.report(TWO, ts(80), {A: ts(55)})
    assert found.keeps_back(TWO, (A, B), ts(60))
    assert not found.keeps_back(TWO, (B,), ts(60))


def test_the_tick_is_the_minimum_over_all_sources() -> None:
    ticks = barrier(100, 80)
    ticks.report(ONE, ts(110), {B: ts(30)})
    assert ticks.advance([A, B]) == {A: 80, B: 30}


def test_a_source_that_has_not_reported_blocks_every_pchannel() -> None:
    ticks = barrier(100)
    ticks.join(TWO)
    assert ticks.advance([A, B]) == {}
    ticks.report(TWO, ts(90), {})
    assert ticks.advance([A, B]) == {A: 90, B: 90}


def test_joining_again_forgets_the_last_report() -> None:
    ticks = barrier(100)
    ticks.join(ONE)
    assert ticks.advance([A]) == {}


def test_a_source_that_left_no_longer_holds_the_tick() -> None:
    ticks = barrier(100, 20)
    ticks.leave(TWO)
    assert ticks.advance([A]) == {A: 100}


def test_without_any_source_nothing_passes_not_even_below_a_definition() -> None:
    ticks = barrier(100)
    ticks.leave(ONE)
    ticks.begin_ddl(ts(120), [A, B])
    assert ticks.advance([A]) == {}


def test_a_report_of_somebody_who_has_not_joined_is_refused() -> None:
    ticks = barrier(100)
    assert not ticks.report(TWO, ts(500), {})
    ticks.leave(ONE)
    assert not ticks.report(ONE, ts(500), {})


def test_a_report_that_arrives_late_does_not_replace_a_newer_one() -> None:
    ticks = barrier(100)
    ticks.report(ONE, ts(90), {A: ts(10)})
    assert ticks.advance([A]) == {A: 100}


def test_a_definition_holds_ticks_strictly_below_it_until_it_ends() -> None:
    ticks = barrier(100)
    ticks.begin_ddl(ts(60), [A])
    ticks.begin_ddl(ts(70), [A])
    assert ticks.advance([A]) == {A: 59}
    ticks.end_ddl(ts(60))
    assert ticks.advance([A]) == {A: 69}
    ticks.end_ddl(ts(70))
    assert ticks.advance([A]) == {A: 100}


def test_a_definition_holds_the_ticks_of_its_own_pchannels_only() -> None:
    ticks = barrier(100)
    ticks.begin_ddl(ts(60), [A])
    assert ticks.advance([A, B]) == {A: 59, B: 100}
    assert (ticks.holder(A), ticks.holder(B)) == (NO_NODE, ONE)
    assert ticks.end_ddl(ts(60)) == {A}
    assert ticks.end_ddl(ts(60)) == frozenset(), "it has ended already"


def test_only_ticks_that_move_a_pchannel_forward_are_written() -> None:
    ticks = barrier(100)
    assert ticks.advance([A]) == {A: 100}
    assert ticks.advance([A, B]) == {B: 100}, "A stands there already"
    ticks.join(TWO)
    ticks.report(TWO, ts(40), {})
    assert ticks.advance([A, B]) == {}, "a newcomer behind the tick does not pull it back"
    assert [ticks.tick(A), ticks.tick(B)] == [100, 100]


@pytest.mark.parametrize("arrived", [False, True])
def test_the_message_that_is_still_on_its_way(arrived: bool) -> None:
    """110 of proxy 2 has been read; 80 of proxy 1 may still be on its way."""
    first, second = UnfinishedWrites(), UnfinishedWrites()
    first.add(ts(80), (A,))
    second.add(ts(110), (A,))
    second.remove(ts(110), (A,))
    if arrived:
        first.remove(ts(80), (A,))
    ticks = barrier(0, 0)
    for node_id, writes in ((ONE, first), (TWO, second)):
        ticks.report(node_id, *tick_report(ts(115), writes.oldest()))
    assert ticks.advance([A]) == {A: 115 if arrived else 79}


class AnyOrder(RuleBasedStateMachine):
    """Proxies come, write, report, leave (their writes over) and come back; definitions run between."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.ticks = TickBarrier()
        self.writes: dict[NodeID, UnfinishedWrites] = {}
        self.running: list[tuple[NodeID, Timestamp, str]] = []
        self.ddl: list[tuple[Timestamp, tuple[str, ...]]] = []
        self.appended: list[tuple[str, int]] = []
        self.last: dict[str, int] = {A: 0, B: 0}

    def stamp(self) -> Timestamp:
        self.now += 1
        return ts(self.now)

    @rule(node=st.sampled_from([ONE, TWO]))
    def join(self, node: NodeID) -> None:
        if node not in self.writes:
            self.ticks.join(node)
            self.writes[node] = UnfinishedWrites()

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), pchannel=st.sampled_from([A, B]))
    def begin_write(self, data: st.DataObject, pchannel: str) -> None:
        node = data.draw(st.sampled_from(sorted(self.writes)))
        stamped = self.stamp()
        self.writes[node].add(stamped, (pchannel,))
        self.running.append((node, stamped, pchannel))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def append_and_end_write(self, data: st.DataObject) -> None:
        node, stamped, pchannel = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        assert stamped > self.last[pchannel], "a message at or below a tick that stands before it"
        self.writes[node].remove(stamped, (pchannel,))

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.writes)))
        self.ticks.report(node, *tick_report(self.stamp(), self.writes[node].oldest()))

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def leave_when_idle(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.writes)))
        if not self.writes[node].oldest():
            del self.writes[node]
            self.ticks.leave(node)

    @rule(pchannels=st.sampled_from([(A,), (B,), (A, B)]))
    def begin_ddl(self, pchannels: tuple[str, ...]) -> None:
        self.ddl.append((self.stamp(), pchannels))
        self.ticks.begin_ddl(*self.ddl[-1])

    @precondition(lambda self: self.ddl)
    @rule()
    def announce_and_end_ddl(self) -> None:
        stamped, pchannels = self.ddl.pop(0)
        for pchannel in pchannels:
            assert stamped > self.last[pchannel], "a definition at or below a tick that stands before it"
        self.ticks.end_ddl(stamped)

    @rule()
    def write_ticks(self) -> None:
        for pchannel, tick in self.ticks.advance([A, B]).items():
            assert tick > self.last[pchannel], "went back"
            self.last[pchannel] = tick

    @invariant()
    def no_tick_is_ahead_of_the_oracle(self) -> None:
        assert max(self.last.values()) <= self.now


TestAnyOrder = AnyOrder.TestCase


def test_a_pchannel_counts_as_written_for_a_while_after_its_last_write() -> None:
    written = WrittenLately(linger_ms=2000)
    assert written.at(compose(1000, 0)) == ()
    written.note([A])
    assert written.at(compose(1200, 0)) == (A,)
    written.note([B])
    assert written.at(compose(3200, 0)) == (A, B), "a report that is lost loses no write"
    assert written.at(compose(3201, 0)) == (B,)
    assert written.at(compose(9000, 0)) == ()
