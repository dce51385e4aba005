"""Targets of backups that are none: names that are empty, as of variables that are not set, and others."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from elanus.cli.app import app
from elanus.cli.backup_files import BackupFailed, BackupFiles
from elanus.cli.options import EXIT_FAILED


@pytest.mark.parametrize("command", [["backup", ""], ["backup", "", "--list"], ["restore", ""]])
def test_an_empty_target_is_not_taken_for_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*command, "--uri", "http://127.0.0.1:1"])
    assert result.exit_code == EXIT_FAILED
    assert "TARGET is empty" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_to_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackupFailed, match=r"the target file://.*/file cannot be written to: .*: give a dir"):
        BackupFiles((tmp_path / "file").as_uri()).check_writable()
    BackupFiles((tmp_path / "new").as_uri()).check_writable()
    assert [path for path in (tmp_path / "new").rglob("*") if path.is_file()] == []
