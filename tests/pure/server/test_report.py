"""`/status` when a coordinator does not answer: everything that the others know."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import collection

from elanus.api.gc import GcState, GcStatus
from elanus.api.querycoord import LoadStatus
from elanus.core.errors import Unavailable
from elanus.core.ids import CollectionID, NodeID
from elanus.core.timestamps import compose
from elanus.querynode.recall import Measured
from elanus.server import report
from elanus.server.report import Report
from elanus.server.status import RoleStatus, Status

COLLECTION = collection()


def answers(value: object) -> Any:
    async def answer(*_: object) -> object:
        return value

    return answer


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def refuses(*_: object) -> None:
    raise Unavailable("no data coordinator is registered")


def subject() -> Any:
    """One process with a proxy; the coordinators are elsewhere."""
    load = LoadStatus(COLLECTION.collection_id, True, {COLLECTION.partitions[0].partition_id: 40})
    return SimpleNamespace(
        roles=SimpleNamespace(names=lambda: ["proxy"], state=lambda _: "Healthy", why_not=lambda _: ""),
        clock=SimpleNamespace(wall_ms=lambda: 2000),
        log=SimpleNamespace(size_bytes=lambda _: 7),
        root=SimpleNamespace(
            ticks=answers({"dml_0": compose(1000, 0)}),
            tick_holders=answers({"dml_0": NodeID(12)}),
            refused_channels=answers({"dml_0": "an older copy"}),
            list_databases=answers([SimpleNamespace(database_id=COLLECTION.database_id, name="default")]),
            list_collections=answers((COLLECTION,)),
        ),
        data=SimpleNamespace(
            segments=answers(()),
            channel_owners=answers({"dml_0_7v0": NodeID(9)}),
            quarantined=answers({"dml_0_7v0": 2, "dml_1_7v1": 3}),
            gc_status=answers(GcStatus(GcState.IDLE, (), 0, 0, 0, None)),
        ),
        ledger=SimpleNamespace(jobs=answers(())),
        query=SimpleNamespace(loads=answers((load,)), resource_groups=answers(())),
        recall=SimpleNamespace(
            target=0.9,
            measured=lambda: [
                Measured(
                    COLLECTION.collection_id, "v", "HNSW", "all rows", 40, 0.5, 0.4, 0.6, "ef 8 is too small"
                ),
                Measured(CollectionID(99), "v", "HNSW", "all rows", 40, 0.5, 0.4, 0.6, ""),
            ],
        ),
        elsewhere=lambda: [RoleStatus(r, "Healthy", "a:1") for r in ("rootcoord 3", "querycoord 4")],
    )


def status(of: Any) -> Status:
    async def ask() -> Status:
        return await asyncio.to_thread(Report(of, None, None).status)

    return asyncio.run(ask())


def states(shown: Status) -> dict[str, str]:
    return {role.role: role.state for role in shown.roles}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_PATIENCE_S", 0.05)


def test_when_all_answer_all_are_as_their_sessions_say() -> None:
    whole = subject()
    whole.elsewhere = lambda: [RoleStatus("datacoord 2", "Standby", "a:1")]
    shown = status(whole)
    assert states(shown) == {"proxy": "Healthy", "datacoord 2": "Standby"}
    (described,) = shown.collections
    assert (described.database, described.name, described.loaded_percent) == ("default", COLLECTION.name, 40)
    assert [
        (c.pchannel, c.lag_ms, c.data_node, c.quarantined, c.held_by, c.refusal) for c in shown.channels
    ] == [("dml_0", 1000.0, 9, 2, 12, "an older copy")]


def test_a_role_that_could_not_be_started_is_shown_with_the_reason() -> None:
    stuck = subject()
    stuck.roles.state = lambda _: "Initializing"
    stuck.roles.why_not = lambda _: "the metadata is older than the log"
    assert status(stuck).roles[0] == RoleStatus("proxy", "Initializing", "the metadata is older than the log")


def test_measured_recall_is_shown_under_the_names_of_collections() -> None:
    shown = status(subject())
    assert [(one.collection, one.index, one.target, one.cause) for one in shown.recalls] == [
        (f"default.{COLLECTION.name}", "HNSW", 0.9, "ef 8 is too small")
    ]
    assert shown.slow_requests == 0


def test_a_coordinator_that_is_silent_is_named_and_the_rest_is_shown() -> None:
    silent = subject()
    silent.query.loads = never
    shown = status(silent)
    assert states(shown) == {"proxy": "Healthy", "rootcoord 3": "Healthy", "querycoord 4": "Abnormal"}
    assert shown.roles[-1].detail == "a:1: does not answer within 0.05 s"
    assert [(c.name, c.loaded_percent) for c in shown.collections] == [(COLLECTION.name, None)]
    assert len(shown.channels) == 1


def test_a_coordinator_that_is_nowhere_is_named_too() -> None:
    lacking = subject()
    for name in ("segments", "channel_owners", "quarantined", "gc_status"):
        setattr(lacking.data, name, refuses)
    shown = status(lacking)
    assert shown.roles[-1] == RoleStatus("datacoord", "Abnormal", "no data coordinator is registered")
    assert shown.garbage.state == "unknown"
    assert [(c.pchannel, c.vchannels) for c in shown.channels] == [("dml_0", 0)]
    assert len(shown.collections) == 1


def test_a_pipeline_that_is_not_enabled_is_not_asked() -> None:
    asked: list[object] = []

    async def ping() -> None:
        asked.append(None)

    pipeline: Any = SimpleNamespace(ping=ping)

    async def ask() -> Status:
        return await asyncio.to_thread(Report(subject(), None, pipeline).status)

    assert asyncio.run(ask()).pipeline.state == "Disabled"
    assert not asked


@pytest.mark.parametrize(
    ("own", "elsewhere", "pipeline"),
    [
        (["proxy"], [RoleStatus("datanode 9", "Healthy", "a:1")], "Healthy"),
        (["datanode"], [], "Healthy"),
        (["proxy"], [], "Abnormal"),
    ],
)
def test_the_pipeline_of_a_cluster_is_any_data_node_also_that_of_the_process_that_is_asked(
    own: list[str], elsewhere: list[RoleStatus], pipeline: str
) -> None:
    asked = subject()
    asked.roles.names = lambda: own
    asked.elsewhere = lambda: elsewhere
    assert status(asked).pipeline.state == pipeline


def test_a_data_node_that_has_yet_to_join_is_no_pipeline() -> None:
    joining = subject()
    joining.roles = SimpleNamespace(
        names=lambda: ["datanode"], state=lambda _: "Initializing", why_not=lambda _: ""
    )
    assert status(joining).pipeline.state == "Abnormal"
