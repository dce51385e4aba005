"""An index node: what becomes of an order, and how each end of its job is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import index, manifest, schema

from elanus.api.indexnode import BuildIndex
from elanus.core.errors import Cancelled, ElanusError, Internal
from elanus.core.ids import BuildID, IndexID
from elanus.core.segments import IndexFile
from elanus.indexnode.node import IndexNode
from elanus.pipeline.index_build import IndexBuildPlan
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobCancelled, JobFailed, RunningJob

FIELD = schema().field("v0")
ORDER = BuildIndex(BuildID(90), 3, IndexID(91), FIELD, index().params, manifest(7, rows=20))
FILE = IndexFile(
    BuildID(90), IndexID(91), FIELD.field_id, ORDER.manifest.segment_id, "HNSW", "L2", {}, "index_files/90",
    rows=20, size_bytes=800, has_raw_vectors=True,
)  # fmt: skip


class Session:
    """Ends every job at once, with the file or with an error."""

    slots = 2

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.plans: list[tuple[IndexBuildPlan, int]] = []

    def run(
        self,
        task: Callable[[Any], Any],
        plans: Sequence[Any],
        *,
        group: str,
        description: str,
        pool: str,
        cpus: int,
    ) -> list[Any]:
        self.plans += [(plan, cpus) for plan in plans]
        if self.error is not None:
            raise self.error
        return [FILE for _ in plans]

    def is_alive(self) -> bool:
        return True

    def running_job(self, group: str) -> RunningJob | None:
        return None

    def cancel(self, group: str) -> None:
        raise AssertionError("nobody cancels")


def built(session: Session, tmp_path: Path) -> IndexFile:
    async def build() -> IndexFile:
        node = IndexNode(JobRunner(session), tmp_path.as_uri(), tmp_path, threads=4, cpus=2)
        return await node.build_index(ORDER)

    return asyncio.run(build())


def test_an_order_is_one_task_with_the_node_s_processors(tmp_path: Path) -> None:
    session = Session()
    assert built(session, tmp_path) == FILE
    ((plan, cpus),) = session.plans
    assert (plan.build_id, plan.version, plan.index_id, plan.field) == (90, 3, 91, FIELD)
    assert (plan.params, plan.manifest) == (ORDER.params, ORDER.manifest)
    assert (plan.threads, cpus) == (4, 2)


def test_each_try_writes_under_a_name_of_its_own(tmp_path: Path) -> None:
    session = Session()
    for _ in range(2):
        built(session, tmp_path)
    one, two = (plan.attempt for plan, _ in session.plans)
    assert one != two
    assert all(attempt.startswith("3-") for attempt in (one, two)), "with the version of the order"


@pytest.mark.parametrize(
    ("ended", "reported", "text"),
    [
        (JobCancelled("by hand"), Cancelled, "cancelled.*by hand.*drop the index and create it again"),
        (JobFailed("a worker died"), Internal, "the build failed: a worker died"),
        (ElanusError("the field has no values"), ElanusError, "^the field has no values"),
    ],
)
def test_the_end_of_the_job_is_an_error_that_the_coordinator_knows(
    tmp_path: Path, ended: Exception, reported: type[ElanusError], text: str
) -> None:
    with pytest.raises(reported, match=text) as caught:
        built(Session(ended), tmp_path)
    assert type(caught.value) is reported
