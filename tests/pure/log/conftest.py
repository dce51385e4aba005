"""In these tests a log begins at position 0, so that a position is a place in its first file."""

from __future__ import annotations

import pytest

from elanus.log import writer


@pytest.fixture(autouse=True)
def from_zero(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real_positions" not in request.fixturenames:
        monkeypatch.setattr(writer, "_clock", lambda: 0)


@pytest.fixture
def real_positions() -> None:
    """The log begins where it does outside of tests."""
