"""Run once more, alone, the files of the tests that failed in the last run, if all of them start processes.

On a busy machine a server may miss a deadline in one of many tests. A test that computes only has no such
excuse: when one of those failed, or so many that the machine cannot be the reason, nothing is run and the
exit code is 1. Whole files are run because the tests of one share a server, and later ones read what earlier
ones wrote. Arguments go to pytest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

FAILED = Path(".pytest_cache/v/cache/lastfailed")
START_PROCESSES = (
    "tests/e2e/",
    "tests/services/",
    "tests/contracts/",
    "tests/pipeline/",
    "tests/pure/wire/test_console_browser.py",
    "tests/pure/wire/test_shared_port.py",
)
TESTS_MAX = 12
"""More than the tests that share one server and fail with it."""


def verdict(failed: Sequence[str]) -> str:
    """Why these tests get no second try; empty when they get one."""
    if not failed:
        return "no failed test is on record"
    if len(failed) > TESTS_MAX:
        return f"{len(failed)} tests failed; at most {TESTS_MAX} get a second try"
    computing = [test for test in failed if not test.startswith(START_PROCESSES)]
    return f"these tests start no process: {', '.join(computing)}" if computing else ""


def files(failed: Sequence[str]) -> list[str]:
    """Those that hold the tests, each once."""
    return sorted({test.partition("::")[0] for test in failed})


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if why := verdict(failed):
        sys.stderr.write(f"no second try: {why}\n")
        return 1
    sys.stderr.write("\n  ".join(["a second try for the files of:", *failed]) + "\n")
    return int(pytest.main(["-n", "0", "-m", "not long", *sys.argv[1:], *files(failed)]))


if __name__ == "__main__":
    raise SystemExit(main())
