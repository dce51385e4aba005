"""Programs on clients that nobody here wrote still do what the clients page says of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Server
from other_clients import CLIENTS, PAGE, Check, Client, failures, install, missing, outcomes_of, page

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.clients]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("other-clients") / "data") as server:
        yield server.start().wait_for_spark()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[Check]]:
    return {}


def skip_without_node(client: Client) -> None:
    """Where the tests are to be complete, a client that cannot run fails instead."""
    if client.environment is None and missing():
        assert "CI" not in os.environ, missing()
        pytest.skip(missing())


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_can_be_installed(client: Client) -> None:
    skip_without_node(client)
    install(client)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_does_what_its_users_do(
    client: Client, server: Server, outcomes: dict[str, list[Check]], tmp_path: Path
) -> None:
    skip_without_node(client)
    outcomes[client.name] = outcomes_of(client, server, tmp_path)
    assert failures(outcomes[client.name]) == {}
    assert server.client().list_collections() == [], "the program left something behind"
    assert "Traceback" not in server.output()


def test_the_page_says_what_they_did(outcomes: dict[str, list[Check]]) -> None:
    for client in CLIENTS.values():
        skip_without_node(client)
    assert list(outcomes) == list(CLIENTS), "the clients did not all run"
    assert PAGE.read_text(encoding="utf-8") == page(outcomes), "run `make compatibility`"
