"""A start that fails half-way leaves nothing running once the role is stopped."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from root_bench import Bench

from elanus.core.errors import Unavailable
from elanus.rootcoord.catalog import Catalog


async def test_a_start_that_failed_half_way_can_be_stopped_and_leaves_no_task() -> None:
    bench = Bench()
    before = asyncio.all_tasks()
    unreadable = patch.object(Catalog, "start", side_effect=Unavailable("the catalog is not there"))
    with unreadable, pytest.raises(Unavailable):
        await bench.start()
    await bench.root.stop()
    assert asyncio.all_tasks() == before
    await bench.start()
    await bench.root.stop()
