"""Counting how often Parquet files are opened, and how many are open at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.parquet as pq
import pytest

from elanus.storage.local import LocalStore


class OpenedFiles:
    """Counts from its creation until the test ends. ``times``: how often each path was opened for reading."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.times: Counter[str] = Counter()
        self.open = 0
        self.open_max = 0
        open_object, counts = LocalStore.open, self

        def counting(store: LocalStore, path: str) -> Any:
            self.times[path] += 1
            return open_object(store, path)

        class CountedFile(pq.ParquetFile):  # type: ignore[misc]
            def __enter__(self) -> Any:
                counts.open += 1
                counts.open_max = max(counts.open_max, counts.open)
                return super().__enter__()

            def __exit__(self, *error: Any) -> None:
                counts.open -= 1
                super().__exit__(*error)

        patch.setattr(LocalStore, "open", counting)
        patch.setattr(pq, "ParquetFile", CountedFile)
