"""A simulator that finds nothing proves nothing: it must find every planted bug, and under its right name.

Each bug is planted in a process of its own, so that all processors look at once. `make test` hunts a bug for
each invariant, `make test-long` the others.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from planted import BUGS, Bug, Hunt, hunt, table

from elanus.core.invariants import INVARIANTS

pytestmark = pytest.mark.sim

_PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"


@pytest.fixture(scope="module")
def hunts(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Hunt]]]:
    """Those of the bugs that are asked for in this session, all under way."""
    specs = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    asked = [spec.params.get("bug") for spec in specs]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield {bug.name: pool.submit(hunt, bug.name) for bug in asked if isinstance(bug, Bug)}
        pool.shutdown(cancel_futures=True)


def cases() -> Iterator[ParameterSet]:
    """Those that break an invariant that none before them breaks, and as long ones the others."""
    broken: set[str] = set()
    for bug in BUGS:
        yield pytest.param(bug, marks=pytest.mark.long if bug.found_as <= broken else (), id=bug.name)
        broken |= bug.found_as


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", list(cases()))
def test_a_planted_bug_is_found(bug: Bug, hunts: dict[str, Future[Hunt]]) -> None:
    found = hunts[bug.name].result()
    assert found.broken in bug.found_as, f"{bug.name} was not found in {bug.seeds} seeds: {found.others}"
    assert found.has_a_story, "a finding shows how it came about"


def test_every_invariant_is_what_some_planted_bug_breaks() -> None:
    assert set().union(*(bug.found_as for bug in BUGS)) == INVARIANTS.keys()


def test_the_page_lists_every_invariant_and_every_planted_bug() -> None:
    page = _PAGE.read_text()
    for name, sentence in INVARIANTS.items():
        assert f"| {name} | {sentence} |" in page
    assert table() in page, "write the table again: python tests/pure/sim/planted.py"
