"""The first decode may happen in several threads at the same moment.

A program of its own, for its end would be that of the tests.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_MANIFEST = """
from elanus.core.segments import BinlogFile, SegmentManifest
from elanus.storage.manifests import read_manifest, write_manifest

manifest = SegmentManifest(1, 2, 3, "v", (BinlogFile("p", 1, 2, 3, 4),), ("s",), 5)
path = write_manifest(store, manifest, "a")
read = lambda: read_manifest(store, path)
"""

_SNAPSHOT = """
from elanus.core.schema import CollectionSchema
from elanus.api.connector import SNAPSHOTS, CollectionSnapshot
from elanus.storage.snapshots import read_snapshot, write_snapshot

write_snapshot(store, "snapshots/1", CollectionSnapshot(2, CollectionSchema("c", ()), 9, (), {}))
read = lambda: read_snapshot(store, "snapshots/1", SNAPSHOTS)
"""

_PROGRAM = """
import sys, threading

class Store(dict):
    # in memory, so that nothing keeps the threads apart

    put, get = dict.__setitem__, dict.__getitem__

store = Store()
{prepare}
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def first():
    barrier.wait()
    read()

threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("prepare", [_MANIFEST, _SNAPSHOT], ids=["manifest", "snapshot"])
def test_many_threads_may_decode_at_first_together(prepare: str) -> None:
    program = _PROGRAM.format(prepare=prepare)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
