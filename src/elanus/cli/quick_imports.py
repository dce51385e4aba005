"""Importing a server's modules in less time and memory.

A server imports a thousand modules and makes some hundred thousand objects, of which none is garbage. Python
looks through them again and again meanwhile, which takes a tenth of the time of the start, and later at each
full collection, when clients wait. So nothing is collected during these imports, and what they made is left
out of all later collections. The methods of dataclasses are compiled once (`elanus.storage.dataclass_code`).

Where the package rich is installed, structlog imports it, for tracebacks in color, which no server prints.
pyarrow imports its own client of S3, which takes 3 MB; Elanus has another.

pyarrow's allocator would begin with two huge pages, 4 MB that stay almost empty. With the setting here it
commits memory as it is used, which takes no longer.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from elanus.storage.dataclass_code import compiled_methods
from elanus.storage.without_pandas import hidden

_COMMIT_AT_ONCE = "MIMALLOC_ARENA_EAGER_COMMIT"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import within. Python's cyclic collector never looks at objects that exist at the end."""
    gc.disable()
    os.environ.setdefault(_COMMIT_AT_ONCE, "0")
    try:
        with hidden("rich"), hidden("pyarrow._s3fs"), compiled_methods():
            yield
    finally:
        gc.freeze()
        gc.enable()
