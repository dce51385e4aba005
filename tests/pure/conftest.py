"""Coroutine tests of this directory run in virtual time, on a loop of their own each."""

from __future__ import annotations

import inspect

import pytest
from virtual_time import run_virtually


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_virtually(pyfuncitem.obj(**arguments))
    return True
