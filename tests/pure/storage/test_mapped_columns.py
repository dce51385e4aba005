"""Columns that are mapped from a file instead of held in memory."""

from __future__ import annotations

import errno
import gc
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from elanus.storage import mapped_columns
from elanus.storage.mapped_columns import MAPPED_MIN_BYTES, forget_name, mapped

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
    given = columns()
    found = mapped(given, tmp_path)
    assert list(found) == list(given)
    for name, column in given.items():
        assert found[name].type == column.type
        assert found[name].equals(column)
    del given, column
    assert pa.total_allocated_bytes() - before_bytes < MAPPED_MIN_BYTES / 100
    assert list(tmp_path.iterdir()) == []
    assert not open_below(tmp_path)
    assert found["text"].take(pa.array([5])).to_pylist() == ["text 5"]


def open_below(directory: Path) -> list[str]:
    """The files below a directory that this process has open, gone ones included."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own, or another thread's
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in found if name.startswith(str(directory))]


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


def files_of(column: pa.Array) -> set[str]:
    """The numbers of the files that hold a column's values."""
    address = column.buffers()[1].address
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    spans = ((*(int(end, 16) for end in line[0].split("-")), line[4]) for line in lines)
    return {file for first, end, file in spans if first <= address < end}


def test_processes_that_map_the_same_columns_share_a_file(tmp_path: Path) -> None:
    shared, other = tmp_path / "one", tmp_path / "other"
    shared.mkdir()
    other.mkdir()
    first, second = mapped(columns(), shared, shared), mapped(columns(), other, shared)
    assert files_of(first["number"]) == files_of(second["number"]) != set()
    assert second["text"].equals(columns()["text"])
    third = mapped({**columns(), "flag": pa.nulls(ROWS)}, other, shared)
    assert files_of(third["number"]) != files_of(first["number"])
    assert (len(list(shared.iterdir())), len(list(other.iterdir()))) == (2, 1)
    del first, third
    gc.collect()
    assert list(shared.iterdir()) == [], "the name is that of the first, which uses it no more"
    assert list(other.iterdir()) == []
    assert second["text"].equals(columns()["text"])
    again = mapped(columns(), other, shared)
    assert files_of(again["number"]) != files_of(second["number"])


def test_a_successor_removes_the_names_that_a_killed_process_gave_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, other = tmp_path / "one", tmp_path / "other"
    shared.mkdir()
    other.mkdir()
    held = mapped(columns(), shared, shared)
    (kept,) = shared.iterdir()
    with monkeypatch.context() as killed:
        killed.setattr(mapped_columns, "_when_all_gone", lambda *_: None)
        mapped({**columns(), "flag": pa.nulls(ROWS)}, other, shared)
    (left,) = other.iterdir()
    assert set(shared.iterdir()) == {kept, shared / left.name}
    (other / kept.name).write_bytes(b"not the file that is named so in the shared directory")
    for file in other.iterdir():
        forget_name(file, shared)
    assert list(shared.iterdir()) == [kept]
    assert list(other.iterdir()) == []
    assert held["text"].equals(columns()["text"])


def test_without_the_shared_directory_each_has_a_file_of_its_own(tmp_path: Path) -> None:
    found = mapped(columns(), tmp_path, tmp_path / "missing")
    assert found["text"].equals(columns()["text"])
    assert list(tmp_path.iterdir()) == []
