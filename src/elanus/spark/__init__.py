"""The connector: collections as Spark DataFrames, in the user's own Spark.

::

    from elanus.spark import register

    register(spark)
    docs = spark.read.format("elanus").option("collection", "docs").load()

Spark's driver asks the server for a snapshot; its tasks read the segments' files themselves, and nothing goes
through the server. `docs/spark.md` describes options and what is promised.
"""

from elanus.spark.source import ElanusSource, register

__all__ = ["ElanusSource", "register"]
