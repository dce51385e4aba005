"""Coroutine tests of this directory run in virtual time, on a loop of their own each; roles log nothing."""

from __future__ import annotations

import inspect
import logging

import pytest
import structlog
from virtual_time import run_virtually

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_virtually(pyfuncitem.obj(**arguments))
    return True
