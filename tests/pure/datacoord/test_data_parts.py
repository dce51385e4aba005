"""The role in parts: together they implement every call of its interfaces."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from data_bench import Bench

from elanus.api.connector import SnapshotApi
from elanus.api.datacoord import DataCoordApi
from elanus.api.ledger import JobLedgerApi
from elanus.rpc.parts import method_of


@pytest.mark.parametrize("api", [DataCoordApi, JobLedgerApi, SnapshotApi])
async def test_every_call_has_a_part_with_its_parameters(tmp_path: Path, api: type) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    for name, call in inspect.getmembers(api, inspect.iscoroutinefunction):
        parameters = list(inspect.signature(call).parameters)[1:]
        assert list(inspect.signature(method_of(bench.coord.role, name)).parameters) == parameters, name
    await bench.coord.stop()
