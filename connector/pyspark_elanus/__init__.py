"""The format ``elanus`` for any Spark session, without a call of `elanus.spark.register`.

Before its first use of a Python data source, Spark imports the packages on its path whose names begin with
``pyspark_``, and registers the class ``DefaultSource`` of each under the class's own name.
"""

from __future__ import annotations

from elanus.spark.source import ElanusSource as DefaultSource

__all__ = ["DefaultSource"]
