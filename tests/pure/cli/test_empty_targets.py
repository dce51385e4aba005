"""Names that are empty, as of variables that are not set."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from elanus.cli.app import app
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
