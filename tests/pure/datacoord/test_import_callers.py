"""A proxy that dies cancels its calls: imports begin and end as if it had waited."""

from __future__ import annotations

import asyncio
from pathlib import Path

from data_bench import Bench
from fakes import CID, DEFAULT, settle

from elanus.api.imports import ImportRequest
from elanus.core.imports import ImportState

S = ImportState
REQUEST = ImportRequest(CID, "docs", DEFAULT, "_default", ("a.parquet",))


async def test_a_task_whose_caller_is_gone_is_started_too(tmp_path: Path) -> None:
    """Also if it is gone when the task is persisted and not yet queued."""
    left = []
    for steps in range(12):
        bench = Bench(tmp_path / str(steps))
        coord = await bench.watched()
        call = asyncio.ensure_future(coord.start_import(REQUEST))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await settle()
        left.append([task.state for task in await coord.import_tasks(CID)])
        await coord.stop()
    assert [] in left
    assert [S.STARTED] in left
    assert [S.PENDING] not in left


async def test_a_task_that_is_cancelled_by_a_caller_who_is_gone_ends_its_job_too(tmp_path: Path) -> None:
    found = set()
    for steps in range(8):
        bench = Bench(tmp_path / str(steps))
        coord = await bench.watched()
        task_id = await coord.start_import(REQUEST)
        await settle()
        call = asyncio.ensure_future(coord.cancel_import(task_id))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await settle()
        found.add(((await coord.import_task(task_id)).state, bench.importers[0].cancelled))
        await coord.stop()
    assert found == {(S.STARTED, 0), (S.FAILED, 1)}
