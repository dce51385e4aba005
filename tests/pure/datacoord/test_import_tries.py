"""Files of an import's tries in garbage collection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from data_bench import COMMIT_DEADLINE_S
from fakes import CID, DEFAULT, settle
from test_collecting import Store, running

from elanus.api.imports import ImportRequest
from elanus.storage.paths import INSERT_LOG


async def test_files_of_all_tries_of_an_import_stay_until_it_ends(tmp_path: Path) -> None:
    """A later try, also one of a restarted coordinator, uses what an earlier one has written."""
    bench = Store(tmp_path)
    bench.gc_policy = replace(bench.gc_policy, missing_tolerance_s=0)
    async with running(tmp_path, bench):
        task_id = await bench.coord.start_import(ImportRequest(CID, "docs", DEFAULT, "", ("a.json",)))
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
