"""Tests that need Chromium or Envoy are skipped where these are missing, but not in `.ci/run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDY = {"tests/pure/wire/test_console_browser.py", "tests/pure/wire/test_shared_port.py"}
MODULE = """
import pytest

@pytest.mark.skipif(True, reason="needs a browser")
def test_that_needs_one():
    raise AssertionError

def test_that_does_not():
    pass
"""


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--never-skip", "test_needy.py"), 1)])
def test_a_skipped_test_is_a_failure_where_it_must_run(
    tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    (tmp_path / "test_needy.py").write_text(MODULE)
    (tmp_path / "test_other.py").write_text(MODULE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "never_skipped", *options, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, "2 skipped" in done.stdout) == (code, not options)
    assert ("must not be skipped here: " in done.stdout and "1 skipped" in done.stdout) == bool(options)


def test_the_whole_check_skips_none_of_them() -> None:
    given = set(re.findall(r"--never-skip (\S+\.py)", (ROOT / ".ci/run").read_text()))
    assert given == NEEDY
    assert all((ROOT / file).is_file() for file in given)
