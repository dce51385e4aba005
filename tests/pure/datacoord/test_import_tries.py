"""An import's tries: their files in garbage collection, and what ends one before its jobs begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from data_bench import COMMIT_DEADLINE_S, Bench
from fakes import CID, DEFAULT, settle
from test_collecting import Store, running

from elanus.api.imports import ImportRequest
from elanus.core.imports import ImportState
from elanus.datacoord import coord as whole
from elanus.datacoord.rows_before import RowsBefore
from elanus.storage.paths import INSERT_LOG

REQUEST = ImportRequest(CID, "docs", DEFAULT, "", ("a.json",))


async def test_files_of_all_tries_of_an_import_stay_until_it_ends(tmp_path: Path) -> None:
    """A later try, also one of a restarted coordinator, uses what an earlier one has written."""
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, missing_tolerance_s=0)
    async with running(tmp_path, bench):
        task_id = await bench.coord.start_import(REQUEST)
        await settle()
        attempt = bench.importers[-1].orders[0].attempt
        written = {f"{at}/a{attempt}-x" for at in (f"{INSERT_LOG}/1/2/3", f"progress/outcomes-{task_id}")}
        for path in written:
            bench.store.put(path, b"x")
        await bench.restart()
        await bench.register()
        await settle()
        again = bench.importers[-1].orders[-1]
        assert again.attempt > again.first_attempt == attempt
        await bench.take(2 * COMMIT_DEADLINE_S)
        await bench.collect()
        assert bench.left() == written
        await bench.coord.cancel_import(task_id)
        await bench.collect()
        assert bench.left() == set()


async def test_an_import_that_is_cancelled_while_it_looks_at_the_existing_rows_runs_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    @asynccontextmanager
    async def waiting(*_: object) -> AsyncIterator[RowsBefore]:
        await looked.wait()
        yield RowsBefore()

    monkeypatch.setattr(whole, "rows_before", waiting)
    bench = Bench(tmp_path)
    coord = await bench.watched()
    task_id = await coord.start_import(REQUEST)
    await settle()
    assert (await coord.import_task(task_id)).state is ImportState.STARTED
    await coord.cancel_import(task_id)
    looked.set()
    await settle()
    assert bench.importers[0].orders == []
    following = await coord.start_import(REQUEST)
    await settle()
    assert [order.task_id for order in bench.importers[0].orders] == [following]
    await coord.stop()
