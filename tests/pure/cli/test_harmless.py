"""Texts of users do nothing to the terminal on which an operator reads them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text
from typer import Exit

from elanus.api.keys import KeyInfo
from elanus.cli.columns import show
from elanus.cli.harmless import harmless
from elanus.cli.keys import show_keys
from elanus.cli.options import fail
from elanus.cli.slow import show_slow
from elanus.core.api_keys import UNLIMITED
from elanus.core.slow_requests import SlowRequest

HOSTILE = "\x1b]0;mine\x07\x1b[2J\x9b31m\u202eback\x7f"
SHOWN = "␛]0;mine␇␛[2J\ufffd31m\ufffdback␡"


def test_control_characters_are_shown_and_lines_stay() -> None:
    assert harmless(HOSTILE) == SHOWN
    assert harmless("two\nlines\tand é 書") == "two\nlines\tand é 書"


def test_descriptions_and_filters_of_users_are_shown_harmless() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    show_keys([KeyInfo("5f0c", "ada", 1, 2, HOSTILE, UNLIMITED)], console)
    show_slow([SlowRequest(0, "Query", "default", HOSTILE, 1.0, 0, "t", f"filter: {HOSTILE}")], console)
    printed = out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "␛[2J" in printed
    assert printed.count("\ufffdback␡") == 3
    assert not set("\x1b\x07\x9b\u202e\x7f") & set(printed)


def test_styles_stay_where_they_are() -> None:
    out = io.StringIO()
    text = Text("\x1bab")
    text.stylize("red", 1, 2)
    show(Console(file=out, force_terminal=True, color_system="standard"), text)
    assert out.getvalue() == "␛\x1b[31ma\x1b[0mb\n"
    assert text.plain == "\x1bab"


def test_errors_of_a_server_are_shown_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit):
        fail(f"no collection {HOSTILE}", 1)
    assert capsys.readouterr().err == f"no collection {SHOWN}\n"
