"""Each script has the same trace as before; a change of a protocol shows as a change of a text.

``pytest tests/golden --update-golden`` writes the texts again, to be read as a diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from runner import run_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_has_the_trace_it_had(script: Path, request: pytest.FixtureRequest) -> None:
    before = script.read_text()
    assert before.startswith("# "), "a script begins with why it is there"
    trace = run_script(before)
    if request.config.getoption("--update-golden"):
        script.write_text(trace)
    else:
        assert trace == before, (
            f"read the diff of: pytest tests/golden --update-golden; git diff {script.name}"
        )


def test_there_are_scripts_of_every_protocol() -> None:
    assert {script.stem.partition("_")[0] for script in SCRIPTS} == {"tick", "flush", "delete", "recovery"}
    assert len(SCRIPTS) >= 12


def test_a_line_that_is_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="no command: dance"):
        run_script("# why\ndance\n")
