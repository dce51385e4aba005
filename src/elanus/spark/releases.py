"""Differences between the releases of PySpark that the connector runs on: 4.0 to 4.3."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from elanus.core.errors import NotSupported

# Up to 4.1 times are in UTC by themselves; later releases ask for the zone.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types in which Spark exchanges rows of these columns, times in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)


def over_connect(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no context in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def require(release: str, what: str, available: bool, remedy: str) -> None:
    """Raise `NotSupported` if this PySpark is too old for ``what``; ``release`` is the first that has it."""
    if not available:
        raise NotSupported(
            f"{what} needs Spark {release} or newer, this is Spark {pyspark.__version__}: {remedy}"
        )


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
except ImportError:  # up to 4.1, which have no streams of changes either

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stream that can read what there is at its start, and end."""


def require_change_streams() -> None:
    """Raise `NotSupported` if streams do not pass on where a batch begins, which ours has to know."""
    available = "start" in signature(DataSourceStreamReader.latestOffset).parameters
    require("4.2", "a stream of changes", available, "read batches with spark.read and changes_from")
