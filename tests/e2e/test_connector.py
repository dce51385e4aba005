"""The connector's wheel next to PySpark alone: on the oldest release, and on the newest with Spark Connect.

`make connector` runs every release in both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from connector_releases import CONNECT, RELEASES, build, environment, run
from harness import Server

# The limit is for a program that hangs. Next to other tests, installing Spark and all steps have
# taken more than five minutes.
pytestmark = [pytest.mark.e2e, pytest.mark.clients, pytest.mark.jvm, pytest.mark.timeout(1800)]

OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
LACKS = {OLDEST: {"knn_join", "write a stream", "stream of changes"}, NEWEST: set()}
"""The steps that a release of Spark has no way for: the connector refuses them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    awake = {"pipeline.idle_stop_s": 0}  # installing takes longer than the server's Spark would wait for work
    with Server(tmp_path_factory.mktemp("connector") / "data", awake) as server:
        yield server.start().wait_for_spark()


@pytest.mark.long
@pytest.mark.parametrize(("release", "remote"), [(OLDEST, ()), (NEWEST, (CONNECT,))])
def test_the_connector_does_on_a_release_what_the_page_says(
    server: Server, wheel: Path, tmp_path: Path, release: str, remote: tuple[str, ...]
) -> None:
    outcomes = run(release, environment(release, wheel), server, tmp_path, *remote)
    assert len(outcomes) > len(LACKS[release])
    refused = {step: outcome for step, outcome in outcomes.items() if outcome != "yes"}
    assert refused.keys() == LACKS[release], refused
    assert all("NotSupported" in outcome for outcome in refused.values()), refused
