"""Reads that wait look again and again whether they wait in vain."""

from __future__ import annotations

from typing import NoReturn

import pytest
from read_bench import Bench, L, Nodes, search

from elanus.core.consistency import ReadConsistency
from elanus.core.errors import DeadlineExceeded, DiskFull
from elanus.core.timestamps import Timestamp, compose
from elanus.proxy.fanout.deadline import Patience


@pytest.mark.parametrize("why", ["no room left for the log", ""])
def test_a_read_looks_again_while_it_waits_whether_a_tick_can_be_written(why: str) -> None:
    """The first read after a disk fills began when that was not known."""
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    wait = bench.nodes.wait_service_time

    def filled(collection_id: int, ts: Timestamp, patience: Patience) -> None:
        if bench.nodes.waited:
            bench.ticks.log_full = why
        wait(collection_id, ts, patience)

    bench.nodes.wait_service_time = filled  # type: ignore[method-assign]
    with pytest.raises(DiskFull if why else DeadlineExceeded):
        bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))
    assert [waits_s for _, waits_s in bench.nodes.waited] == ([2.0, 4.0] if why else [2.0, 4.0, 1.0])
    assert bench.measures.waits_s == [sum(waits_s for _, waits_s in bench.nodes.waited)]


def test_a_read_whose_nodes_wait_for_the_tick_themselves_ends_with_the_reason() -> None:
    """Nodes over channels have the read by then, and report only that its time is up."""
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))
    bench.ticks.log_full = "no room left for the log"
    bench.nodes.wait_service_time = lambda *_: None  # type: ignore[method-assign]

    def unanswered(*_: object) -> NoReturn:
        raise DeadlineExceeded("the query nodes did not all answer")

    bench.nodes.search = unanswered  # type: ignore[method-assign]
    with pytest.raises(DiskFull, match="no room left for the log"):
        bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))


def test_nodes_that_give_up_before_the_time_is_over_are_not_asked_again() -> None:
    """A serving process that is behind passes the read on at once."""
    bench = Bench(Nodes(Timestamp(0)), now=compose(300_000))

    def behind(_collection: int, ts: Timestamp, patience: Patience) -> None:
        bench.nodes.waited.append((ts, patience.timeout_s))
        bench.nodes.clock_s += 1.0
        raise DeadlineExceeded("this process is behind")

    bench.nodes.wait_service_time = behind  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceeded, match="behind"):
        bench.verbs.search(search(consistency=ReadConsistency(L.STRONG)))
    assert len(bench.nodes.waited) == 1
