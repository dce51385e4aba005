"""Write the archive of Spark's classes that the tests share into a directory: `tests/e2e/spark_classes.py`.

Usage: python tools/spark_classes.py DIRECTORY. Writes nothing where Java cannot make one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from elanus.pipeline.class_archive import ClassArchive
from elanus.pipeline.class_training import train
from elanus.pipeline.java import find_java
from elanus.pipeline.spark_conf import SparkSettings


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if ClassArchive(directory, find_java(), Path(pyspark.__path__[0])).is_possible:
        train(SparkSettings(master="local[2]", driver_memory_mb=512), directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
