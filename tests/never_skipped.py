"""The option ``--never-skip FILE``: a test of this file that would be skipped fails, with the reason.

`.ci/run` gives it for the files that need programs which not every machine has.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--never-skip",
        action="append",
        default=[],
        metavar="FILE",
        help="a test of this file fails instead of being skipped; may be repeated",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.nodeid.startswith(tuple(item.config.getoption("never_skip"))):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"must not be skipped here: {reason}"
    return report
