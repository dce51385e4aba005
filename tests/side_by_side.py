"""Which tests run next to each other when several processes of pytest share the work (pytest-xdist).

The tests of one file run in one process, one after the other, and so do those of files that share a server or
a Spark session; any file may run next to any other. The tests in `ALONE` wait until all others have ended and
their processes are gone: they judge how long something takes under faults, or need most of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ALONE = (
    "tests/contracts/test_channels_of_three.py",
    "tests/e2e/test_bad_cables.py",
    "tests/e2e/test_cluster.py",
    "tests/e2e/test_dev_cluster_roles.py",
    "tests/e2e/test_failover.py",
    "tests/e2e/test_histories.py",
    "tests/e2e/test_network.py",
    "tests/e2e/test_serve.py::test_a_pipeline_that_comes_up_ends_with_its_killed_server",
    "tests/e2e/test_serve.py::test_it_answers_soon_after_its_start",
    "tests/e2e/test_serve.py::test_it_stops_within_a_second_when_nothing_is_under_way",
    "tests/e2e/test_serve.py::test_it_stops_cleanly_and_soon_while_spark_comes_up_and_when_it_is_up",
)
"""Files, and single tests of other files. In these, leases of few seconds must hold over many processes, or
something must be done within seconds."""

TOGETHER = {
    "one server": (
        "tests/e2e/test_alias_switches.py",
        "tests/e2e/test_api_definitions.py",
        "tests/e2e/test_api_errors.py",
        "tests/e2e/test_api_exact.py",
        "tests/e2e/test_api_half.py",
        "tests/e2e/test_api_rows.py",
        "tests/e2e/test_api_types.py",
        "tests/e2e/test_api_vectors.py",
        "tests/e2e/test_full_text.py",
        "tests/e2e/test_handoff.py",
        "tests/e2e/test_import.py",
        "tests/e2e/test_own_reads.py",
        "tests/e2e/test_rest.py",
        "tests/e2e/test_spark.py",
    ),
    "one Spark session": (
        "tests/pipeline/test_compaction_on_spark.py",
        "tests/pipeline/test_jobs_on_spark.py",
        "tests/pipeline/test_knn_join_on_spark.py",
        "tests/pipeline/test_native_scan.py",
        "tests/pipeline/test_session.py",
    ),
}
"""Files whose tests share a fixture of session scope that starts a JVM: once for all of them."""

FIRST = (*TOGETHER, "tests/e2e/", "tests/pipeline/", "tests/services/", "tests/contracts/", "tests/pure/sim/")
"""The tests that start first, in this order: those that wait long. The short ones are left for the end."""

SHARED_BY = {"shared": "one server", "session": "one Spark session"}
SERVICES = ("etcd_server", "nats_server", "s3_server")
"""Fixtures of session scope that are started once in each process that asks for one."""

_MARKS_OF_DIRECTORIES = {
    "tests/e2e/": "e2e",
    "tests/services/": "services",
    "tests/pipeline/": "jvm",
    "tests/pure/sim/": "sim",
    "tests/pure/faults/": "faults",
}
_MARKS_OF_FIXTURES = {**dict.fromkeys(SHARED_BY, "jvm"), **dict.fromkeys(SERVICES, "services")}
_NOT_PURE = ("e2e", "jvm", "services", "kills", "clients")


class Collected(Protocol):
    """The part of a `pytest.Function` that is used here."""

    nodeid: str
    fixturenames: list[str]

    def get_closest_marker(self, name: str) -> pytest.Mark | None: ...


def group_of(nodeid: str) -> str:
    """The name of what runs in one process, one test after the other: its file, or a key of `TOGETHER`.

    A test that is named in `ALONE` is a group by itself.
    """
    if (test := nodeid.partition("[")[0]) in ALONE:
        return test
    file = nodeid.partition("::")[0]
    return next((group for group, files in TOGETHER.items() if file in files), file)


def faults_of(item: Collected) -> list[str]:
    """The faults of a test's place and marks; empty if there are none."""
    file = item.nodeid.partition("::")[0]
    wanted = {mark for place, mark in _MARKS_OF_DIRECTORIES.items() if file.startswith(place)}
    wanted |= {mark for name, mark in _MARKS_OF_FIXTURES.items() if name in item.fixturenames}
    faults = [f"lacks the mark {mark}" for mark in sorted(wanted) if not item.get_closest_marker(mark)]
    if file.startswith("tests/pure/"):
        faults += [
            f"has the mark {mark} in tests/pure" for mark in _NOT_PURE if item.get_closest_marker(mark)
        ]
    for fixture, group in SHARED_BY.items():
        if fixture in item.fixturenames and group_of(item.nodeid) != group:
            faults.append(f"uses the fixture {fixture}: name its file in side_by_side.TOGETHER[{group!r}]")
    return faults


def check(items: Iterable[pytest.Item]) -> None:
    """Raise `pytest.UsageError` that names each test with `faults_of`."""
    functions = [item for item in items if isinstance(item, pytest.Function)]
    lines = [f"{item.nodeid} {fault}" for item in functions for fault in faults_of(item)]
    if lines:
        raise pytest.UsageError("\n".join(lines))


def turn(nodeid: str) -> int:
    """The tests with the lowest number start first."""
    group = group_of(nodeid)
    return next((n for n, start in enumerate(FIRST) if group.startswith(start)), len(FIRST))


class AloneLast(LoadFileScheduling):
    """Hands out groups in the order of their first tests, those that ``alone`` names at the end.

    A process runs a test only once it knows its next one, or that there is none. When nothing but groups that
    run alone is left, the processes therefore end one by one; the last one gets these groups when the others
    have gone, with all that they started.
    """

    def __init__(self, config: pytest.Config, log: Producer | None, alone: Iterable[str] = ALONE) -> None:
        super().__init__(config, log)
        self._alone = frozenset(alone)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # the tests of a process that crashed are queued again, behind those that run alone
        for group in [group for group in self.workqueue if group in self._alone]:
            self.workqueue.move_to_end(group)
        if len(self.nodes) == 1 or not self._only_alone_left():
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down:
            return
        others_work = any(other is not node and not other.shutting_down for other in self.nodes)
        if not self.workqueue or (self._only_alone_left() and others_work):
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) < 2:  # one that runs, and its next one
            self._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        crashed = super().remove_node(node)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _only_alone_left(self) -> bool:
        return all(group in self._alone for group in self.workqueue)
