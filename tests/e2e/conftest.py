"""Servers for the tests of this directory: one that many share, and fresh ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from cluster import Cluster
from harness import Server
from pymilvus import MilvusClient

SHOWN_CHARACTERS = 6000

# every error the tests provoke would be logged with its traceback, next to the failure
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with its pipeline up, for tests that leave it as it was."""
    settings = {"indexcoord.index_rows_min": 200, "proxy.count": 2}
    with Server(tmp_path_factory.mktemp("shared") / "data", settings) as server:
        yield server.start().wait_for_spark()
        server.stop()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes servers that are the test's own, and ends them with it. They are not started yet."""
    made: list[Server] = []

    def make(settings: Mapping[str, object] | None = None, name: str = "data") -> Server:
        server = Server(tmp_path / name, settings)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture
def client(shared: Server) -> Iterator[MilvusClient]:
    """A client of the shared server. Everything a test made in the default database is dropped afterwards."""
    client = MilvusClient(shared.uri)
    yield client
    client.use_database("default")
    for name in client.list_collections():
        for alias in client.list_aliases(name)["aliases"]:
            client.drop_alias(alias)
        client.drop_collection(name)
    client.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the servers printed last."""
    report = yield
    if report.failed:
        for server in Server.running:
            text = server.output()[-SHOWN_CHARACTERS:]
            report.sections.append((f"server on {server.data_dir}", text))
        for cluster in Cluster.running:
            report.sections.append((f"cluster in {cluster.directory}", cluster.output()))
    return report
