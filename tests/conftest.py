"""The services of a cluster, real ones, each started when the first test asks for it and shared by all.

A test that kills or fills a service starts one of its own (`elanus.devcluster`). Tests that use these
fixtures carry the mark ``services``. With several processes of pytest each process has its own services;
`side_by_side` says which tests share a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from elanus.rpc.library_settings import library_settings

# Before the first import of gRPC, as in a server's processes.
os.environ.update(library_settings(os.environ))

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

import never_skipped
import side_by_side
from elanus.devcluster.etcd import Etcd
from elanus.devcluster.nats import Nats
from elanus.devcluster.swift import Swift

# how long an example takes says nothing on a machine that runs other tests too
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _UNTIMED)
settings.register_profile("quick", _UNTIMED, max_examples=20)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the traces of the golden scripts again"
    )
    never_skipped.pytest_addoption(parser)


pytest_runtest_makereport = never_skipped.pytest_runtest_makereport


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    side_by_side.check(items)
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: side_by_side.turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> side_by_side.AloneLast | None:
    return side_by_side.AloneLast(config, log) if config.getoption("dist") == "loadfile" else None


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
