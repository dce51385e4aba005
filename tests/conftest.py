"""The services of a cluster, real ones, each started when the first test asks for it and shared by all.

A test that kills or fills a service starts one of its own (`elanus.devcluster`). Tests that use these
fixtures carry the mark ``services``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.swift import Swift


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the traces of the golden scripts anew"
    )


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """``.endpoint`` is ``host:port``. Tests take key prefixes of their own."""
    service = Etcd(tmp_path_factory.mktemp("etcd"))
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """``.url`` is for clients. Tests take stream names of their own. It does not wait for the disk."""
    service = Nats(tmp_path_factory.mktemp("nats"), sync_always=False)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    """``.store_url(prefix)`` is for `open_store`. Tests take prefixes of their own."""
    service = Swift(tmp_path_factory.mktemp("s3"))
    service.start()
    yield service
    service.stop()
