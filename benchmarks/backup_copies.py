"""How fast `elanus backup` copies files, as a share of what ``cp`` and a sync make of the same files.

Both are in one run, in turns, on one disk. ``python -m benchmarks.backup_copies DIRECTORY``
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elanus.storage.copying import Copy, copy_object, in_threads, threads_for
from elanus.storage.local import LocalStore

FILES, FILE_BYTES, ROUNDS = 16, 32 * 1024 * 1024, 5


def copied_s(source: Path, target: Path) -> float:
    """Copy as a backup does, and return the seconds."""
    store, to = LocalStore(source), LocalStore(target)
    began = time.perf_counter()
    names = [file.name for file in source.iterdir()]
    in_threads(
        lambda c: copy_object(store, to, c), (Copy(n, n) for n in names), threads_for(to), lambda _: None
    )
    return time.perf_counter() - began


def plain_s(source: Path, target: Path) -> float:
    """Copy with ``cp``, wait until the files are on the disk, and return the seconds."""
    began = time.perf_counter()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    subprocess.run(["sync", *map(str, target.iterdir())], check=True)
    return time.perf_counter() - began


def median_share(directory: Path, say: Callable[[str], None]) -> float:
    """Return the backup's rate as a share of cp's. ``say`` gets a line for each round."""
    source, target = directory / "source", directory / "target"
    source.mkdir(parents=True)
    try:
        for number in range(FILES):
            (source / f"{number}.parquet").write_bytes(os.urandom(FILE_BYTES))
        os.sync()
        shares = []
        for _ in range(ROUNDS):
            took = []
            for copy in (plain_s, copied_s):
                took.append(copy(source, target))
                shutil.rmtree(target)
                os.sync()
            shares.append(took[0] / took[1])
            say(f"cp {took[0]:.2f} s, backup {took[1]:.2f} s: {shares[-1]:.0%} of its rate")
        return statistics.median(shares)
    finally:
        shutil.rmtree(source)


if __name__ == "__main__":
    print(f"median of {ROUNDS} rounds: {median_share(Path(sys.argv[1]), print):.0%}")
