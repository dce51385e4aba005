"""The connector: collections as Spark DataFrames, in the user's own Spark.

::

    from elanus.spark import register

    register(spark)
    docs = spark.read.format("elanus").option("collection", "docs").load()

Spark's driver asks the server for a snapshot; its tasks read the segments' files themselves, and nothing goes
through the server. `table` and `attach` have Spark's own reader do that, without Python, for frames and SQL.
`knn_join`, `near_duplicates` and `recall_report` search the built indexes in the same way. `docs/spark.md`
and `docs/spark-sql.md` describe options and what is promised.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elanus.spark.attached import attach
    from elanus.spark.duplicates import delete_filters, near_duplicates
    from elanus.spark.knn import knn_join
    from elanus.spark.opened import table
    from elanus.spark.recall import recall_report
    from elanus.spark.source import ElanusSource, register

__all__ = [
    "ElanusSource",
    "attach",
    "delete_filters",
    "knn_join",
    "near_duplicates",
    "recall_report",
    "register",
    "table",
]

_HOMES = {
    "ElanusSource": "source",
    "attach": "attached",
    "delete_filters": "duplicates",
    "knn_join": "knn",
    "near_duplicates": "duplicates",
    "recall_report": "recall",
    "register": "source",
    "table": "opened",
}
_SEARCHING = frozenset({"attached", "duplicates", "knn", "recall"})
"""Modules that use the index library."""


def __getattr__(name: str) -> Any:
    """Import pyspark only where it is used: `elanus.spark.changes` does without."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    home = _HOMES[name]
    try:
        if home in _SEARCHING:
            import_module("elanus.index.library").load_library()
        return getattr(import_module(f"elanus.spark.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "faiss":
            raise
        raise ModuleNotFoundError(
            f"{name} searches indexes, which needs faiss, also on the executors: "
            "pip install 'pyspark-elanus[search]'",
            name="faiss",
        ) from error
