"""Proxies share a rate by the demand of their clients: together they admit the limit, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from proxy_bench import resolved
from test_admission import PLAIN

from elanus.core.errors import RateLimited
from elanus.core.ids import NodeID
from elanus.core.rate_limits import EVERYTHING, Rate
from elanus.core.rate_shares import DemandMeter, RateShares
from elanus.proxy.role.admission import Admission

RATE = 60.0
LIMITED = resolved(replace(PLAIN, properties={"collection.searchRate.max.vps": f"{RATE:g}"}))
PROXIES = 3
TICK_STEPS = 10
STEP_S = 0.02
WARM_UP_S, MEASURED_S = 4.0, 10.0


class Cluster:
    """Proxies that report their demand every 200 ms and get their shares. ``reporting``: whether they do."""

    def __init__(self, proxies: int = PROXIES) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.reporting = True
        self.shares = RateShares()
        self.proxies = [
            Admission(lambda _: EVERYTHING, {}, lambda: proxies, lambda: self.now_s) for _ in range(proxies)
        ]
        self.admitted = [0] * proxies

    def run(self, seconds: float, demands: Callable[[float], list[float]]) -> list[int]:
        """Send query vectors, one a request, at these rates; return how many each proxy admitted."""
        before = list(self.admitted)
        owed = [0.0] * len(self.proxies)
        for _ in range(round(seconds / STEP_S)):
            self.steps += 1
            self.now_s = self.steps * STEP_S
            for number, demand in enumerate(demands(self.now_s)):
                owed[number] += demand * STEP_S
                while owed[number] >= 1:
                    owed[number] -= 1
                    self.admitted[number] += self.is_admitted(number)
            if self.reporting and self.steps % TICK_STEPS == 0:
                self.report()
        return [after - was for after, was in zip(self.admitted, before, strict=True)]

    def is_admitted(self, number: int) -> bool:
        try:
            self.proxies[number].read(LIMITED, Rate.SEARCH, 1)
        except RateLimited:
            return False
        return True

    def report(self) -> None:
        for number, proxy in enumerate(self.proxies):
            node = NodeID(number)
            self.shares.report(node, proxy.demand())
            proxy.use_shares(self.shares.of(node, len(self.proxies)))


@pytest.mark.parametrize(
    "demands",
    [[180.0] * 3, [400.0, 0.0, 0.0], [200.0, 30.0, 10.0], [120.0, 120.0, 0.0], [80.0, 1.0, 0.0]],
    ids=str,
)
def test_three_proxies_admit_a_limit_within_a_tenth(demands: list[float]) -> None:
    cluster = Cluster()
    cluster.run(WARM_UP_S, lambda _: demands)
    admitted = cluster.run(MEASURED_S, lambda _: demands)
    assert 0.9 * RATE * MEASURED_S <= sum(admitted) <= 1.1 * RATE * MEASURED_S


def test_the_limit_holds_while_the_demand_moves_between_proxies() -> None:
    cluster = Cluster()

    def turns(now_s: float) -> list[float]:
        return [240.0 if int(now_s / 3) % PROXIES == number else 0.0 for number in range(PROXIES)]

    cluster.run(WARM_UP_S, turns)
    admitted = cluster.run(MEASURED_S * 3, turns)
    assert 0.8 * RATE * MEASURED_S * 3 <= sum(admitted) <= 1.1 * RATE * MEASURED_S * 3


def test_a_demand_within_the_limit_is_admitted_wherever_it_is() -> None:
    cluster = Cluster()
    cluster.run(WARM_UP_S, lambda _: [40.0, 4.0, 0.0])
    assert sum(cluster.run(MEASURED_S, lambda _: [40.0, 4.0, 0.0])) >= 0.98 * 44 * MEASURED_S


def test_without_reports_the_shares_are_equal_again() -> None:
    cluster = Cluster()
    cluster.run(WARM_UP_S, lambda _: [400.0, 0.0, 0.0])
    cluster.reporting = False
    cluster.run(WARM_UP_S, lambda _: [400.0, 0.0, 0.0])
    admitted = cluster.run(MEASURED_S, lambda _: [400.0] * PROXIES)
    assert all(
        abs(one - RATE / PROXIES * MEASURED_S) <= 0.2 * RATE / PROXIES * MEASURED_S for one in admitted
    )


def test_the_shares_of_all_proxies_are_one_and_a_proxy_that_left_has_none() -> None:
    shares = RateShares()
    for number, demand in enumerate((10.0, 30.0, 60.0)):
        shares.report(NodeID(number), {"1/search": demand})
    assert sum(shares.of(NodeID(n), 3)["1/search"] for n in range(3)) == pytest.approx(1.0)
    shares.forget([NodeID(2)])
    assert shares.of(NodeID(2), 2) == {}
    assert sum(shares.of(NodeID(n), 2)["1/search"] for n in range(2)) == pytest.approx(1.0)
    shares.report(NodeID(1), {})
    assert shares.of(NodeID(0), 1) == {"1/search": pytest.approx(1.0)}


def test_a_limit_that_nobody_asks_for_any_more_leaves_the_reports() -> None:
    cluster = Cluster(1)
    cluster.run(1.0, lambda _: [10.0])
    assert cluster.proxies[0].demand()
    cluster.run(10.0, lambda _: [0.0])
    assert cluster.proxies[0].demand() == {}


def test_what_was_just_asked_for_counts_before_there_is_an_average() -> None:
    meter = DemandMeter(5.0)
    assert meter.look(5.0) == 0.0
    meter.ask(7)
    assert meter.look(5.0) > 0
    assert meter.look(6.0) == pytest.approx(7 * 0.918, rel=0.01)
