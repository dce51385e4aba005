"""Every role interface there is, found by its name: for tests that hold for all of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import elanus.api
from elanus.api.query_channel import ReadPayloads


def _interfaces() -> dict[str, type[Any]]:
    modules = (
        importlib.import_module(f"elanus.api.{m.name}") for m in pkgutil.iter_modules(elanus.api.__path__)
    )
    named = {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if name.endswith("Api") and inspect.isclass(kind)
    }
    return named | {"ReadPayloads": ReadPayloads}


INTERFACES = _interfaces()
