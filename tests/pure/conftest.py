"""Coroutine tests of this directory run in virtual time, on a loop of their own each; roles log nothing."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

import pytest
import structlog
from virtual_time import run_virtually


def _drop(_logger: Any, _method: str, _event: Any) -> NoReturn:
    """A processor: `structlog.testing.capture_logs` puts its own in its place."""
    raise structlog.DropEvent


structlog.configure(processors=[_drop])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_virtually(pyfuncitem.obj(**arguments))
    return True
