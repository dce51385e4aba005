"""A task of `test_cluster_spark_settings`; Python workers of the cluster import it from here."""

from __future__ import annotations

import time
from pathlib import Path


def straggle(plan: tuple[str, bool]) -> str:
    """Name the try that ran to its end. ``plan``: a directory, and whether the first try there hangs."""
    directory, hangs = plan
    if not hangs:
        return "first"
    try:
        Path(directory, "first").mkdir()
    except FileExistsError:
        return "second"
    time.sleep(3600)
    return "first"
