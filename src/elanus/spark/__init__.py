"""The connector: collections as Spark DataFrames, in the user's own Spark.

::

    from elanus.spark import register

    register(spark)
    docs = spark.read.format("elanus").option("collection", "docs").load()

Spark's driver asks the server for a snapshot; its tasks read the segments' files themselves, and nothing goes
through the server. `docs/spark.md` describes options and what is promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elanus.spark.source import ElanusSource, register

__all__ = ["ElanusSource", "register"]


def __getattr__(name: str) -> Any:
    """Import pyspark only where it is used: `elanus.spark.changes` does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from elanus.spark import source

    return getattr(source, name)
