"""Misuse that `elanus run` refuses before it starts anything."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from elanus.pipeline.driver import DriverFailed
from elanus.server.cluster.datanode import SparkOnDemand
from elanus.server.cluster.run import _run, _start_pipeline, check
from elanus.server.cluster.workspace import Workspace
from elanus.server.settings import Settings
from elanus.server.settings_services import ClusterSettings, LogSettings, MetaSettings, StorageSettings
from elanus.server.startup import CannotStart

COMPLETE = Settings(
    meta=MetaSettings(url="etcd://h:2379/elanus"),
    log=LogSettings(url="nats://h:4222/elanus"),
    storage=StorageSettings(url="s3://bucket/elanus"),
)


@pytest.mark.parametrize(
    "roles", [("proxy",), ("rootcoord", "datacoord", "querynode", "proxy"), ("datanode",)]
)
def test_roles_that_go_together(roles: tuple[str, ...]) -> None:
    check(COMPLETE, roles)


@pytest.mark.parametrize(
    ("roles", "text"),
    [
        (("prox",), "no role 'prox': there are rootcoord,"),
        (("proxy", "proxy"), "runs each role once"),
        (("proxy", "datanode"), "a process of its own"),
    ],
)
def test_roles_that_do_not(roles: tuple[str, ...], text: str) -> None:
    with pytest.raises(CannotStart, match=text):
        check(COMPLETE, roles)


@pytest.mark.parametrize("name", ["meta", "log", "storage"])
def test_a_service_that_is_not_named(name: str) -> None:
    settings = COMPLETE.model_copy(update={name: getattr(Settings(), name)})
    with pytest.raises(CannotStart, match=f"needs the setting {name}.url, such as"):
        check(settings, ("proxy",))


def test_listening_on_every_address_needs_one_to_announce() -> None:
    with pytest.raises(ValueError, match="set advertise"):
        ClusterSettings(host="0.0.0.0")
    assert ClusterSettings(host="0.0.0.0", advertise="node7").host == "0.0.0.0"


def test_a_data_node_whose_spark_does_not_start_says_why(tmp_path: Path) -> None:
    async def start() -> None:
        async with AsyncExitStack() as stack:
            await _start_pipeline(stack, COMPLETE, workspace, asyncio.Event())

    workspace = Workspace(tmp_path, "datanode")
    no_java = patch.object(SparkOnDemand, "start", side_effect=DriverFailed("there is no Java"))
    with no_java, pytest.raises(CannotStart, match="Spark does not start: there is no Java"):
        asyncio.run(start())
    workspace.close()


def test_a_process_that_waits_for_a_service_that_is_down_can_be_stopped(tmp_path: Path) -> None:
    async def start() -> int:
        stopping = asyncio.Event()

        async def open_services(*_: object) -> None:
            stopping.set()
            await asyncio.Event().wait()

        where = "elanus.server.cluster.run"
        with (
            patch(f"{where}.stop_signals", return_value=stopping),
            patch(f"{where}._open", open_services),
        ):
            return await _run(COMPLETE.model_copy(update={"data_dir": tmp_path}), ("querynode",))

    assert asyncio.run(start()) == 0
