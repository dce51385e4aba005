"""The stores that the contract suites run against. One etcd serves all tests, each under its own root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from meta_adapters import ADAPTERS, LASTING, Place, WithStore, opener


def _params(names: Any) -> list[Any]:
    marks = {"etcd": pytest.mark.services}
    return [pytest.param(name, marks=marks.get(name, ())) for name in sorted(names)]


def _place(request: pytest.FixtureRequest, directory: Path) -> Place:
    is_etcd = request.param == "etcd"
    return Place(directory, request.getfixturevalue("etcd_server").endpoint if is_etcd else "")


@pytest.fixture(params=_params(ADAPTERS))
def with_store(request: pytest.FixtureRequest, tmp_path: Path) -> WithStore:
    return opener(ADAPTERS[request.param], _place(request, tmp_path))


@pytest.fixture(params=_params(LASTING))
def with_lasting_store(request: pytest.FixtureRequest, tmp_path: Path) -> WithStore:
    return opener(LASTING[request.param], _place(request, tmp_path))
