"""Errors of the connector as Spark's users see them: the sentence, without the frames of our code.

Spark's Python workers send the text of a traceback to the JVM, which puts it into its own error. That of an
`ElanusError` says what to do; its traceback would hide that. Any other error is a defect, and keeps its
traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from elanus.core.errors import ElanusError

_HIDE = "SPARK_HIDE_TRACEBACK"
"""PySpark asks for it when it reports an error, right before the worker ends."""


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Have a Spark worker report errors of Elanus by their text alone. Elsewhere it changes nothing.

    As a decorator it is for functions; generators have it in their body.
    """
    try:
        yield
    except ElanusError as error:
        if not _in_worker():
            raise
        os.environ[_HIDE] = "1"
        raise error from None


def _in_worker() -> bool:
    """Whether this process was started by Spark to run Python code: no program of a user."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
