"""Elanus: the Milvus 2.0 vector database in Python, its data pipeline on Spark.

`elanus.open` opens a collection of a running server for Arrow, DuckDB and Spark (`elanus.spark.opened`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elanus.spark.opened import open_collection as open  # noqa: A004 - as in `elanus.open("docs")`

__all__ = ["__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what opens collections only where it is used."""
    if name != "open":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from elanus.spark.opened import open_collection

    return open_collection
