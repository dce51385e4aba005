"""Keeping pandas out of the servers and of Spark's workers.

If pandas is installed, pyarrow imports it when it first converts a value, to see whether the value is a
pandas object. That costs 0.6 s of processor time at startup and 58 MB, and no value ever is one. pandas is
installed with PySpark's SQL part and with the Milvus client. pyarrow looks once, so hiding pandas for that
moment is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hidden(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is hidden here", name=fullname)
        return None


def keep_pandas_out() -> None:
    """Make pyarrow look for pandas now and not find it. Call before anything else uses pyarrow."""
    import pyarrow as pa

    with hidden("pandas"):
        pa.array([1])


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Let imports of the package fail meanwhile, in every thread, unless it has been imported before."""
    finder = _Hidden(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
