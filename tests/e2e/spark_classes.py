"""The archive of Spark's classes that the tests share: a JVM starts from it with half of the work.

A server makes one for itself once its Spark sleeps; the servers under test do not live that long. `make test`
writes this one (`tools/spark_classes.py`). Where it is missing the tests take longer, no more.
"""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parents[2] / ".venv" / "spark-classes"


def lend(scratch: Path) -> Path:
    """Let the sessions with this scratch directory, which is made, start from it. Returns the directory."""
    scratch.mkdir(parents=True, exist_ok=True)
    for archive in DIRECTORY.glob("*.jsa"):
        link = scratch / archive.name
        if not link.is_symlink():
            link.symlink_to(archive)
    return scratch
