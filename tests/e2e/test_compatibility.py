"""Every client generation still does what the compatibility page says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compatibility import CLIENTS, PAGE, Outcomes, outcomes_of, page, python_of
from harness import Server

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.clients]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("clients") / "data") as server:
        yield server.start().wait_for_spark()


@pytest.fixture(scope="module")
def outcomes(server: Server) -> dict[str, Outcomes]:
    return {}


@pytest.mark.parametrize("version", CLIENTS)
def test_a_client_runs_its_ordinary_program(
    version: str, server: Server, outcomes: dict[str, Outcomes]
) -> None:
    python_of(version)
    outcomes[version] = outcomes_of(version, server)
    failed = {
        title: outcome
        for rows in outcomes[version].values()
        for title, outcome in rows.items()
        if outcome not in ("yes", "absent")
    }
    assert failed == {}
    assert "Traceback" not in server.output()


def test_the_page_says_what_they_did(outcomes: dict[str, Outcomes]) -> None:
    assert list(outcomes) == list(CLIENTS), "the clients did not all run"
    assert PAGE.read_text(encoding="utf-8") == page(outcomes), "run `make compatibility`"
