"""Every client generation still does what the compatibility page says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compatibility import CLIENTS, PAGE, Outcomes, cell, columns, outcomes_of, page, python_of
from harness import Server

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.clients]

OLDEST, *_, NEWEST = CLIENTS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("clients") / "data") as server:
        yield server.start().wait_for_spark()


@pytest.fixture(scope="module")
def outcomes(server: Server) -> dict[str, Outcomes]:
    return {}


@pytest.mark.parametrize(
    "version", [pytest.param(v, marks=() if v in (OLDEST, NEWEST) else pytest.mark.long) for v in CLIENTS]
)
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
    text = PAGE.read_text(encoding="utf-8")
    assert outcomes, "no client ran"
    for version, sections in outcomes.items():
        did = {section: {title: cell(o) for title, o in rows.items()} for section, rows in sections.items()}
        assert columns(text)[version] == did, "run `make compatibility`"
    if outcomes.keys() == CLIENTS.keys():
        assert text == page(outcomes), "run `make compatibility`"
