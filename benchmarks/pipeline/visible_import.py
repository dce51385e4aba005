"""Whole calls as their caller sees them: an import until reads find its rows, an index until it is built.

One client, one server with its session warm, fsync on. Each time is from the call until the result
can be used: the job, Spark's time for it, the commit, the load and the index.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymilvus import DataType, MilvusClient
from pymilvus.client.prepare import Prepare
from pymilvus.grpc_gen import milvus_pb2
from pymilvus.grpc_gen.common_pb2 import ImportState

from benchmarks.freshness import serving
from benchmarks.pipeline import importing
from benchmarks.pipeline.places import Turns

COLLECTION = "imported"
COMMITTED, VISIBLE, INDEXED = "segments are committed", "reads find the rows", "the index is built"
DEADLINE_S = 600.0
_POLL_S = 0.02
_LOOK_S = 1.0
_NLIST = 64


def measure(rows: int, dim: int, turns: int) -> dict[str, Turns]:
    """Import so many rows so many times, each into a collection of its own, after once unmeasured.

    Seconds from the call, by what they are the time until.
    """
    seconds: dict[str, list[float]] = {COMMITTED: [], VISIBLE: [], INDEXED: []}
    with (
        tempfile.TemporaryDirectory(prefix="elanus-import-") as directory,
        serving(Path(directory) / "data", 1) as announced,
    ):
        file = Path(directory) / "data" / "import" / importing.FILE
        importing.write_rows(file, rows, dim, groups=2)
        client = MilvusClient(f"http://{announced.address}")
        try:
            for turn in range(turns + 1):
                for until, taken_s in _turn(client, dim, rows).items():
                    if turn:
                        seconds[until].append(round(taken_s, 4))
        finally:
            client.close()
    return {until: Turns(rows, dim, taken) for until, taken in seconds.items()}


def _turn(client: MilvusClient, dim: int, rows: int) -> dict[str, float]:
    schema = MilvusClient.create_schema()
    schema.add_field(importing.KEY_FIELD, DataType.INT64, is_primary=True)
    schema.add_field(importing.VECTOR_FIELD, DataType.FLOAT_VECTOR, dim=dim)
    index = client.prepare_index_params()
    index.add_index(importing.VECTOR_FIELD, index_type="IVF_FLAT", metric_type="L2", params={"nlist": _NLIST})
    client.create_collection(COLLECTION, schema=schema, index_params=index, consistency_level="Strong")

    def committed() -> bool:
        return sum(int(s.num_rows) for s in client.list_persistent_segments(COLLECTION)) >= rows

    def visible() -> bool:
        (counted,) = client.query(COLLECTION, output_fields=["count(*)"])
        return int(counted["count(*)"]) >= rows

    def indexed() -> bool:
        built = client.describe_index(COLLECTION, importing.VECTOR_FIELD)
        return int(built["indexed_rows"]) >= rows and not int(built["pending_index_rows"])

    began_s = time.perf_counter()
    stub = client._get_connection()._stub
    answer = stub.Import(Prepare.do_bulk_insert(COLLECTION, "", [importing.FILE]))
    request = milvus_pb2.GetImportStateRequest(task=task_of(answer))

    def failure() -> str:
        return failure_of(stub.GetImportState(request))

    found = {
        until: when(came, failure, began_s)
        for until, came in ((COMMITTED, committed), (VISIBLE, visible), (INDEXED, indexed))
    }
    client.drop_collection(COLLECTION)
    return found


def task_of(answer: Any) -> int:
    """The task of an import that was accepted. Raises `RuntimeError`."""
    if answer.status.code or answer.status.error_code:
        raise RuntimeError(f"the import was refused: {answer.status.reason}")
    return int(answer.tasks[0])


def failure_of(answer: Any) -> str:
    """Why the import failed; "" if it has not. Raises `RuntimeError` if the server does not say."""
    if answer.status.code or answer.status.error_code:
        raise RuntimeError(f"the state of the import is not known: {answer.status.reason}")
    if answer.state not in (ImportState.ImportFailed, ImportState.ImportFailedAndCleaned):
        return ""
    reasons = [info.value for info in answer.infos if info.key == "failed_reason"]
    return "; ".join(reasons) or "no reason given"


def when(came: Callable[[], bool], failure: Callable[[], str], began_s: float) -> float:
    """Seconds since then when it came. Raises `RuntimeError` at a failure, and `TimeoutError`.

    The failure is asked for once a second: questions cost the server time that is measured here.
    """
    look_s = time.perf_counter() + _LOOK_S
    while not came():
        now_s = time.perf_counter()
        if now_s >= look_s:
            look_s = now_s + _LOOK_S
            if reason := failure():
                raise RuntimeError(f"the import failed: {reason}")
        if now_s - began_s > DEADLINE_S:
            raise TimeoutError(f"the import had not come to its end after {DEADLINE_S:g} s")
        time.sleep(_POLL_S)
    return time.perf_counter() - began_s
