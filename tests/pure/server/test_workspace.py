"""The directories of a cluster's processes on one machine: each its own, found again after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.server.cluster.workspace import Workspace
from elanus.server.startup import CannotStart


def test_each_process_takes_the_first_free_place(tmp_path: Path) -> None:
    first, second = Workspace(tmp_path, "proxy"), Workspace(tmp_path, "proxy")
    assert (first.root, second.root) == (tmp_path / "proxy-1", tmp_path / "proxy-2")
    (first.scratch / "left").write_text("by the process before")
    first.close()
    again = Workspace(tmp_path, "proxy")
    assert again.root == tmp_path / "proxy-1"
    assert list(again.scratch.iterdir()) == []
    again.close()
    second.close()


def test_the_archive_of_java_classes_is_all_that_is_left_for_the_next_process(tmp_path: Path) -> None:
    killed = Workspace(tmp_path, "datanode")
    for name in ("spark-classes-0123.jsa", "spark-classes-0123.new", "left", "task/left"):
        (killed.scratch / name).parent.mkdir(exist_ok=True)
        (killed.scratch / name).touch()
    killed.close()
    again = Workspace(tmp_path, "datanode")
    assert [path.name for path in again.scratch.iterdir()] == ["spark-classes-0123.jsa"]
    again.close()


def test_a_directory_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot be used: Not a directory"):
        Workspace(tmp_path / "file", "proxy")
