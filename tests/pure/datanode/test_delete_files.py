"""Deletes of the keys in users' files: read once, in pieces, whatever the format."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_bench import Node

from elanus.core.errors import InvalidParameter
from elanus.core.imports import WriteMode
from elanus.pipeline import write_deletes
from elanus.pipeline.delete_job import deletes_task
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN, read_delta_log
from elanus.storage.objects import open_store

VCHANNELS = ("by-dev-rootcoord-dml_0_7v0", "by-dev-rootcoord-dml_1_7v1")
KEYS = list(range(100))


def as_parquet(keys: list[int]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": keys}), out)
    return out.getvalue()


FORMATS: dict[str, bytes] = {
    "a.json": json.dumps([{"id": key} for key in KEYS]).encode(),
    "a.jsonl": b"".join(b'{"id":%d}\n' % key for key in KEYS),
    "a.parquet": as_parquet(KEYS),
    "a.csv": b"id\n" + b"".join(b"%d\n" % key for key in KEYS),
}


async def deleted(tmp_path: Path, name: str) -> list[int]:
    """Return the keys of all delta logs; each is in the log of one vchannel only."""
    (tmp_path / "import").mkdir()
    (tmp_path / "import" / name).write_bytes(FORMATS[name])
    outcome = await Node(tmp_path).run(name, mode=WriteMode.DELETE, vchannels=VCHANNELS)
    store = open_store((tmp_path / "files").as_uri())
    assert [log.vchannel for log in outcome.deltas] == list(VCHANNELS)
    logs = [read_delta_log(store, log.file) for log in outcome.deltas]
    assert {n for log in logs for n in log[PARTITION_COLUMN].to_pylist()} == {8}
    return sorted(key for log in logs for key in log[PRIMARY_KEY_COLUMN].to_pylist())


@pytest.mark.parametrize("name", FORMATS)
async def test_keys_are_deleted_from_files_of_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(write_deletes, "_ROWS_AT_ONCE", 7)
    assert await deleted(tmp_path, name) == KEYS


async def test_keys_are_written_while_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def noting(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            steps.append(step)
            return function(*arguments)

        return noted

    monkeypatch.setattr(write_deletes, "_ROWS_AT_ONCE", 50)
    monkeypatch.setattr(write_deletes, "convert", noting("read", write_deletes.convert))
    monkeypatch.setattr(write_deletes, "delete_rows", noting("write", write_deletes.delete_rows))
    assert await deleted(tmp_path, "a.parquet") == KEYS
    assert steps == ["read", "write", "write"] * 2


async def test_a_large_json_list_of_keys_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_deletes, "JSON_BYTES_MAX", 100)
    with pytest.raises(
        InvalidParameter, match=r"a\.json has \d+ bytes; .* write the keys as Parquet, or as J"
    ):
        await deleted(tmp_path, "a.json")


async def test_users_files_are_read_by_a_task_and_not_by_the_data_node(tmp_path: Path) -> None:
    """A file may hold any amount: in a worker the memory for it is bounded."""
    node = Node(tmp_path)
    (tmp_path / "import").mkdir()
    (tmp_path / "import" / "a.parquet").write_bytes(FORMATS["a.parquet"])
    outcome = await node.run("a.parquet", mode=WriteMode.DELETE)
    assert node.spark.tasks == [deletes_task]
    assert sum(log.file.rows for log in outcome.deltas) == len(KEYS)
