"""Run by `test_adding` on sources with one more setting: every layer sets it, and the page describes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elanus.cli.app import app
from elanus.cli.pages import pages
from elanus.server.settings_load import InvalidSettings, environment_name, load, setting_names

NAME = "proxy.toy_rows"


def main() -> None:
    config = Path(sys.argv[1]) / "elanus.yaml"
    assert NAME in setting_names()
    assert load().proxy.toy_rows == 3
    config.write_text("proxy: {toy_rows: 4}\n")
    assert load(config).proxy.toy_rows == 4
    os.environ[environment_name(NAME)] = "5"
    assert load(config).proxy.toy_rows == 5
    assert load(config, {NAME: "6"}).proxy.toy_rows == 6
    with pytest.raises(InvalidSettings, match=f"command line: {NAME} is '0': input should be greater"):
        load(config, {NAME: "0"})
    assert f"{NAME}\n\nRows of the toy.\n" in pages()["configuration.md"]
    shown = CliRunner().invoke(app, ["settings", "--set", f"{NAME}=7"])
    assert shown.exit_code == 0, shown.output
    assert "toy_rows: 7" in shown.output


if __name__ == "__main__":
    main()
