"""The process that Python workers are forked from, with what tasks need imported already.

Spark lets workers go after a minute without work, and starts new ones by forking a daemon. Spark's own
daemon imports nothing, so each new worker would spend a second or two on imports (pyarrow, faiss) before its
first task: longer than most flushes take. Forked from this one a worker is ready in milliseconds, and the
workers share the memory of the libraries.

Forking after these imports is sound because nothing here has been used yet but to convert one number: Arrow,
its allocators and OpenBLAS register handlers for fork and start their threads again in the child.

Run by Spark as ``python -m elanus.pipeline.daemon pyspark.worker``.
"""

from __future__ import annotations

from elanus.pipeline.worker import load_libraries
from elanus.storage.dataclass_code import compiled_methods
from elanus.storage.without_pandas import keep_pandas_out

if __name__ == "__main__":
    from pyspark.daemon import manager

    keep_pandas_out()
    with compiled_methods():
        load_libraries()
    manager()
