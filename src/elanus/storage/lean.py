"""Keeping pandas out of the servers and of Spark's workers.

pyarrow imports pandas, where it is installed, when it first converts a value: to see whether the value is
one of pandas'. That costs nearly a second of start-up and some 50 MB, and no value ever is. pandas is
installed because the Milvus client requires it. pyarrow looks once; hiding pandas for that moment is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden from pyarrow here", name=fullname)
        return None


def keep_pandas_out() -> None:
    """Let pyarrow look for pandas now and not find it. Call before anything else uses pyarrow."""
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([1])
    finally:
        sys.meta_path.remove(finder)
