"""A range of any number of segments: few open files, bounded memory, and the same files as ever."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from insert_log_files import read_vectors
from streams import MINE, SCHEMA, delete, insert, stream, tick, upsert

from elanus.core.catalog import Checkpoint
from elanus.core.ids import CollectionID
from elanus.core.timestamps import Timestamp
from elanus.log.port import Position
from elanus.pipeline import range_files, spill
from elanus.pipeline.range_files import OPEN_MAX, write_range
from elanus.pipeline.ranges import FlushPlan, RangeOutcome, writes_in_range
from elanus.storage.binlog import read_columns
from elanus.storage.local import LocalStore
from elanus.storage.parquet import BinlogWriter
from elanus.storage.stats_log import read_stats_logs

SEGMENTS = 3 * OPEN_MAX
ROUNDS = 3
PATIENCE_S = 60.0


def plan(until: int) -> FlushPlan:
    start = Checkpoint(Timestamp(0), 0, Timestamp(0), 0)
    return FlushPlan(
        "try-1", CollectionID(7), SCHEMA, MINE, "p", start, Timestamp(until), Position(10**9), "", "", ""
    )


class Writers:
    """Counts the insert log writers that are open at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: set[int] = set()
        self.most = 0
        self.made = 0
        made, leave = range_files.insert_log_writer, BinlogWriter.__exit__

        def counted(*args: object, **options: object) -> BinlogWriter:
            writer = made(*args, **options)  # type: ignore[arg-type]
            self.made += 1
            self.open.add(id(writer))
            self.most = max(self.most, len(self.open))
            return writer

        def left(writer: BinlogWriter, *exc_info: object) -> None:
            self.open.discard(id(writer))
            leave(writer, *exc_info)

        monkeypatch.setattr(range_files, "insert_log_writer", counted)
        monkeypatch.setattr(BinlogWriter, "__exit__", left)


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writers]:
    counted = Writers(monkeypatch)
    yield counted
    assert not counted.open


def flushed(store: LocalStore, scratch: Path) -> RangeOutcome:
    """Three rounds over all segments, keys falling; the last round upserts; one delete at the end."""
    messages = []
    for round_ in range(ROUNDS):
        write = upsert if round_ == ROUNDS - 1 else insert
        first, key = round_ * SEGMENTS, ROUNDS - round_
        messages += [
            write(first + segment, segment, 10 * segment + key) for segment in range(1, SEGMENTS + 1)
        ]
    end = ROUNDS * SEGMENTS + 1
    entries = stream(*messages, delete(end, 5), tick(end))
    return write_range(plan(end), writes_in_range(entries, plan(end)), store, scratch, "one")


@pytest.mark.parametrize("held_bytes", [1, 500, spill.HELD_BYTES], ids=["each", "some", "none spilled"])
def test_segments_beyond_the_open_ones_are_written_one_after_the_other(
    tmp_path: Path, writers: Writers, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    monkeypatch.setattr(spill, "HELD_BYTES", held_bytes)
    store, scratch = LocalStore(tmp_path / "files"), tmp_path / "scratch"
    scratch.mkdir()
    outcome = flushed(store, scratch)
    assert (writers.most, writers.made) == (OPEN_MAX, SEGMENTS)
    assert [output.segment_id for output in outcome.segments] == list(range(1, SEGMENTS + 1))
    for segment, output in enumerate(outcome.segments, 1):
        keys = [10 * segment + 1, 10 * segment + 2, 10 * segment + 3]
        table = read_columns(store, output.insert_logs, ["id", "Timestamp"])
        stamps = [2 * SEGMENTS + segment, SEGMENTS + segment, segment]
        assert table.to_pydict() == {"id": keys, "Timestamp": stamps}
        assert read_vectors(store, output.insert_logs, "v").tolist() == [[key, -key] for key in keys]
        (stats,) = read_stats_logs(store, output.stats_logs)
        assert (stats.rows, stats.pk_min, stats.pk_max) == (3, keys[0], keys[-1])
        assert stats.may_contain(pa.array(keys)).all()
    assert outcome.delta is not None
    assert outcome.delta.rows == SEGMENTS + 1
    assert list(scratch.iterdir()) == []


class SyncedStore(LocalStore):
    """Ends writes of insert logs when as many wait as it takes at once: a disk ends many syncs together."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._together = threading.Barrier(self.writes_at_once)

    def put_file(self, path: str, source: Path) -> None:
        self._together.wait(PATIENCE_S)
        super().put_file(path, source)


def test_the_files_of_some_segments_become_durable_together(
    tmp_path: Path, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "HELD_BYTES", 1)
    store, scratch = SyncedStore(tmp_path / "files"), tmp_path / "scratch"
    assert OPEN_MAX % store.writes_at_once == 0
    scratch.mkdir()
    messages = [insert(segment, segment, segment) for segment in range(1, SEGMENTS + 1)]
    end = SEGMENTS + 1
    outcome = write_range(
        plan(end), writes_in_range(stream(*messages, tick(end)), plan(end)), store, scratch, "one"
    )
    assert [output.segment_id for output in outcome.segments] == list(range(1, SEGMENTS + 1))
    assert writers.most == OPEN_MAX


def test_an_error_half_way_leaves_nothing_open_and_no_scratch_files(
    tmp_path: Path, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "HELD_BYTES", 1)

    def failing() -> Iterator[object]:
        for segment in range(1, SEGMENTS + 1):
            yield insert(segment, segment, segment)
        raise ValueError("the log ends")

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(ValueError, match="the log ends"):
        write_range(plan(99), failing(), LocalStore(tmp_path / "files"), scratch, "one")  # type: ignore[arg-type]
    assert writers.made == OPEN_MAX
    assert list(scratch.iterdir()) == []


MANY = """
import resource, sys
from pathlib import Path
from streams import insert
from test_many_segments import plan
from elanus.pipeline.range_files import write_range
from elanus.storage.local import LocalStore
import elanus.storage.local
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
elanus.storage.local.os.fsync = lambda file: None  # thousands of them take seconds, and nothing is cut here
there = Path(sys.argv[1])
writes = (insert(n + 1, n % 1100 + 1, n) for n in range(2200))
outcome = write_range(plan(9999), writes, LocalStore(there / "files"), there, "one")
print(len(outcome.segments), sum(file.rows for file in outcome.files))
"""


@pytest.mark.slow
def test_more_segments_than_the_process_may_have_open_files(tmp_path: Path) -> None:
    path = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{MANY}", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1100", "2200"]), done.stderr
