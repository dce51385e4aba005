"""Columns that are mapped from a file instead of held in memory."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from elanus.storage import mapped_columns
from elanus.storage.mapped_columns import MAPPED_MIN_BYTES, mapped

ROWS = MAPPED_MIN_BYTES // 8


def columns(rows: int = ROWS) -> dict[str, pa.Array]:
    numbers = np.arange(rows)
    return {
        "number": pa.array(numbers),
        "null": pa.array(numbers, mask=numbers % 3 == 0),
        "text": pa.array([f"text {n}" for n in range(rows)]),
        "encoded": pa.array(["a", "b", None, "c"] * (rows // 4)).dictionary_encode(),
        "list": pa.array([[n, n + 1] for n in range(rows)]),
        "flag": pa.array(numbers % 2 == 0),
        "sliced": pa.array(np.arange(rows + 3))[3:],
    }


def test_they_are_the_same_and_memory_holds_none_of_them(tmp_path: Path) -> None:
    gc.collect()
    before_bytes = pa.total_allocated_bytes()
    given, files = columns(), len(os.listdir("/proc/self/fd"))
    found = mapped(given, tmp_path)
    assert list(found) == list(given)
    for name, column in given.items():
        assert found[name].type == column.type
        assert found[name].equals(column)
    del given, column
    assert pa.total_allocated_bytes() - before_bytes < MAPPED_MIN_BYTES / 100
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == files
    assert found["text"].take(pa.array([5])).to_pylist() == ["text 5"]


def test_small_columns_stay_in_memory() -> None:
    given = {"number": pa.array(range(100))}
    assert mapped(given, Path("/nowhere"))["number"] is given["number"]


def test_a_full_disk_leaves_them_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(pa.OSFile):
        def close(self) -> None:
            super().close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    given = columns()
    monkeypatch.setattr(mapped_columns.pa, "OSFile", FullDisk)
    assert mapped(given, tmp_path)["text"] is given["text"]
    assert list(tmp_path.iterdir()) == []
