"""Each process and service of a cluster killed, paused or restarted alone, under load: what stands still how
long, and that nothing acknowledged is lost, doubled or back from the dead.

`make failover` measures the same strikes on a quiet machine (docs/failover.md), `make soak` mixes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_load import NAME, READ, WRITE
from harness import until
from strikes import PROXIES, STRIKES, Stage, Strike, kill, start

from elanus.devcluster.roles import COORDINATORS

pytestmark = [pytest.mark.e2e, pytest.mark.services, pytest.mark.jvm]

SEED = 1
LONG = ("kill datacoord", "kill indexcoord", "pause a proxy", "pause querycoord")
"""Strikes of a kind of which the others show what happens. The rolling restart meets every coordinator."""
SERVED_DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("failover"))
    try:
        yield stage.start(SEED)
    finally:
        stage.close()


@pytest.fixture
def loaded(stage: Stage) -> Iterator[Stage]:
    """Under load; afterwards every row is compared with what was acknowledged."""
    stage.load.begin()
    try:
        stage.load.wait_for(5, stage.load.mark())
        yield stage
    finally:
        stage.load.end()
    stage.load.check()


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(s, marks=pytest.mark.long if s.name in LONG else (), id=s.name.replace(" ", "-"))
        for s in STRIKES
    ],
)
def test_reads_and_writes_go_on_and_nothing_is_lost(loaded: Stage, strike: Strike) -> None:
    result = loaded.strike(strike)
    assert result.reads_s < strike.reads_s, result
    assert result.writes_s < strike.writes_s, result


def test_with_two_replicas_only_reads_in_flight_fail(stage: Stage) -> None:
    load, client = stage.load, stage.cluster.client("proxy1")
    client.release_collection(NAME)
    client.load_collection(NAME, replica_number=2)
    load.begin()
    try:
        load.wait_for(5, load.mark())
        since_s = load.mark()
        repair = kill(stage, stage.find("querynode"))
        load.wait_for(20, load.mark())
        repair()
        span = load.span(since_s)
    finally:
        load.end()
    load.check()
    assert span.failed[READ] <= len(PROXIES), span.errors
    assert span.gap_s(READ) < 15, span
    client.release_collection(NAME)
    client.load_collection(NAME)


def test_rolling_restart_of_every_role_fails_no_request_for_good(loaded: Stage) -> None:
    since_s = loaded.load.mark()
    for victim in ("proxy1", "querynode1", *COORDINATORS, "datanode1"):
        process = loaded.process(loaded.find(victim))
        process.stop()
        start(process)
    loaded.load.wait_for(5, loaded.load.mark())
    span = loaded.load.span(since_s)
    assert span.succeeded[WRITE] > 0
    assert [w.book.doubtful for w in loaded.load.writers] == [[], []], span.errors
    until(lambda: len(loaded.sessions()) == 10, SERVED_DEADLINE_S, "every role is there again", poll_s=0.2)
