"""Collections in a session's SQL: a view each, and table functions about them.

::

    from elanus.spark import attach

    with attach(spark, "docs", uri="http://127.0.0.1:19530"):
        spark.sql("select color, count(*) from docs group by color").show()
        spark.sql("select d.id, h.score from elanus_search('docs', array(0f, 1f, 2f, 3f), 5) h "
                  "join docs d on d.id = h.key").show()

Views and functions read one version of each collection, pinned by the call: a search and the rows that it is
joined with agree. The views are Spark's own scans of the files (`elanus.spark.native`).
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from pyspark.sql import SparkSession

from elanus.core.errors import InvalidParameter, MissingParameter
from elanus.spark.opened import OpenCollection, pinned
from elanus.spark.table_functions import register_functions


def attach(
    spark: SparkSession,
    *collections: str,
    as_of: int | str | None = None,
    prefix: str = "",
    status_url: str = "",
    **options: str,
) -> Attached:
    """Make collections known to a session's SQL, as of now or as of a moment of the past.

    Each becomes a temporary view, named ``prefix`` and its name. The table functions ``elanus_search`` and
    ``elanus_segments`` (`elanus.spark.table_functions`) take these names. ``status_url``: the address of the
    server's HTTP status; with it there is also ``elanus_jobs``. ``options``: those of the format ``elanus``
    for reading, of all collections. A second call replaces the functions, so name all collections in one.

    Raises as `elanus.spark.opened.open_collection` does, and `MissingParameter` without a collection.
    """
    if not collections:
        raise MissingParameter('no collection: name those to attach, attach(spark, "docs", "people")')
    if options.get("columns") or options.get("filter"):
        raise InvalidParameter("columns and filter do not apply to views: name both in the query")
    attached = Attached(spark)
    try:
        for name in collections:
            attached.add(prefix + name, pinned(name, as_of, options, with_indexes=True))
        register_functions(spark, attached.opened, status_url)
    except BaseException:
        attached.detach()
        raise
    return attached


class Attached:
    """Views and the versions behind them. A context manager, which detaches them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.opened: dict[str, OpenCollection] = {}

    def add(self, view: str, opened: OpenCollection) -> None:
        self.opened[view] = opened
        opened.to_spark(self._spark).createOrReplaceTempView(view)

    def detach(self) -> None:
        """Drop the views, and let the files of their versions go. The functions then raise an error."""
        with contextlib.ExitStack() as closing:
            for view, opened in self.opened.items():
                closing.callback(opened.close)
                self._spark.catalog.dropTempView(view)
        self.opened = {}

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
