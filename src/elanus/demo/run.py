"""The demo from end to end.

Start a server, create a collection, insert, flush to Parquet, build an index, load, search, filter,
query, delete, restart, search again, draw. Every answer is compared with an exact one computed here;
a wrong answer ends the demo with `DemoFailed`.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pymilvus import MilvusException

from elanus.demo import picture
from elanus.demo.data import SHIPPED_FILE, Digits, exact_neighbors, read, recall
from elanus.demo.report import Report
from elanus.demo.server import DemoServer, ServerFailed
from elanus.demo.steps import Hits, Steps

K = 10
RECALL_MIN = 0.95
FILTERED_DIGIT = 3
ROWS_DRAWN = 8
READ_BACK_ROWS = 100
PICTURE_NAME = "demo-neighbors.png"


class DemoFailed(Exception):
    """The demo could not run, or the server's answer was wrong. The text says which."""


def run(*, data_dir: Path | None = None, data: Path | None = None, out: Path = Path("out")) -> Path:
    """Run the demo; return the picture's path. Raises `DemoFailed`.

    ``data_dir`` keeps the server's data (default: a temporary directory), ``data`` is an ``.npz`` with
    ``train``, ``train_label`` and ``test`` (default: the shipped digits).
    """
    if find_spec("matplotlib") is None:
        raise DemoFailed(picture.MISSING)
    try:
        digits = read(data or SHIPPED_FILE)
    except (OSError, ValueError) as error:
        raise DemoFailed(f"the vectors cannot be read: {error}; name a file with --data") from None
    with ExitStack() as stack:
        directory = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elanus-demo-")))
        server = stack.enter_context(DemoServer(directory / "data" if data_dir is None else directory))
        try:
            return _Demo(digits, server, Report()).run(out)
        except ServerFailed as error:
            raise DemoFailed(str(error)) from None
        except MilvusException as error:
            raise DemoFailed(f"the server refused a request: {error}") from error


class _Demo:
    """One run: the data, the server, the report."""

    def __init__(self, digits: Digits, server: DemoServer, report: Report) -> None:
        self._digits = digits
        self._server = server
        self._report = report
        self._exact = exact_neighbors(digits.queries, digits.train, K)

    def run(self, out: Path) -> Path:
        with self._report.step("start the server") as step:
            uri = self._server.start()
            step.outcome = uri
        with closing(Steps(uri)) as steps:
            self._write(steps)
            self._search(steps)
            self._filter(steps)
            self._query(steps)
            deleted = self._delete(steps)
        with self._report.step("restart the server") as step:
            self._server.stop()
            uri = self._server.start()
            step.outcome = uri
        with closing(Steps(uri)) as steps:
            hits = self._search_again(steps, deleted)
        with self._report.step("draw") as step:
            path = out / PICTURE_NAME
            picture.draw(self._rows(hits), path)
            step.outcome = str(path)
        self._report.end(f"the picture: {path.resolve()}")
        return path

    def _write(self, steps: Steps) -> None:
        train = self._digits.train
        with self._report.step("create the collection"):
            steps.create_collection(train.shape[1])
        with self._report.step("insert") as step:
            total = len(train)
            steps.insert(train, self._digits.labels, lambda rows: step.progress(f"{rows} of {total} rows"))
            step.outcome = f"{total} rows of {train.shape[1]} dimensions"
        with self._report.step("flush (Spark writes Parquet)"):
            steps.flush()
        with self._report.step("build the index (HNSW, on Spark)"):
            steps.create_index()
        with self._report.step("load"):
            steps.load()

    def _search(self, steps: Steps) -> None:
        queries = self._digits.queries
        with self._report.step(f"search {len(queries)} queries, top {K}") as step:
            hits = steps.search(queries, K)
            found = recall(_ids(hits), self._exact)
            step.outcome = f"recall {found:.3f}"
            _check(found >= RECALL_MIN, f"the search's recall is {found:.3f}, below {RECALL_MIN}")

    def _filter(self, steps: Steps) -> None:
        matching = np.flatnonzero(self._digits.labels == FILTERED_DIGIT)
        queries = self._digits.queries
        with self._report.step(f"the same where digit == {FILTERED_DIGIT}") as step:
            hits = steps.search(queries, K, where=f"digit == {FILTERED_DIGIT}")
            wrong = [hit for query in hits for hit in query if hit["entity"]["digit"] != FILTERED_DIGIT]
            _check(not wrong, f"{len(wrong)} hits do not match the filter")
            exact = matching[exact_neighbors(queries, self._digits.train[matching], K)]
            found = recall(_ids(hits), exact)
            step.outcome = f"recall {found:.3f}"
            _check(found >= RECALL_MIN, f"the filtered search's recall is {found:.3f}, below {RECALL_MIN}")

    def _query(self, steps: Steps) -> None:
        digits = self._digits
        with self._report.step("count(*)") as step:
            rows = steps.count()
            _check(rows == len(digits.train), f"count(*) is {rows}, inserted were {len(digits.train)}")
            step.outcome = f"{rows} rows"
        with self._report.step(f"read back {READ_BACK_ROWS} vectors") as step:
            ids = range(0, len(digits.train), len(digits.train) // READ_BACK_ROWS)[:READ_BACK_ROWS]
            images = steps.images(ids)
            same = sorted(images) == list(ids) and all((images[i] == digits.train[i]).all() for i in ids)
            _check(same, "the vectors read back are not those inserted")
            step.outcome = "each as inserted"

    def _delete(self, steps: Steps) -> int:
        """Delete the nearest row of the first query; return its key."""
        nearest = int(self._exact[0, 0])
        with self._report.step("delete a row, then read strongly") as step:
            steps.delete([nearest])
            (hits,) = steps.search(self._digits.queries[:1], K, consistency_level="Strong")
            _check(nearest not in _ids([hits])[0], f"row {nearest} was deleted and is found")
            rows = steps.count()
            _check(rows == len(self._digits.train) - 1, f"count(*) is {rows} after the deletion")
            step.outcome = f"row {nearest} is gone, {rows} rows left"
        return nearest

    def _search_again(self, steps: Steps, deleted: int) -> Hits:
        with self._report.step("search again") as step:
            steps.load()
            hits = steps.search(self._digits.queries, K, consistency_level="Strong")
            _check(all(deleted not in ids for ids in _ids(hits)), f"row {deleted} has come back")
            left = np.delete(np.arange(len(self._digits.train)), deleted)
            exact = left[exact_neighbors(self._digits.queries, self._digits.train[left], K)]
            found = recall(_ids(hits), exact)
            step.outcome = f"recall {found:.3f}"
            _check(found >= RECALL_MIN, f"the recall after the restart is {found:.3f}, below {RECALL_MIN}")
        return hits

    def _rows(self, hits: Hits) -> list[picture.Row]:
        shown = zip(self._digits.queries[:ROWS_DRAWN], hits, strict=False)
        return [picture.Row(query, [self._neighbor(hit) for hit in found]) for query, found in shown]

    def _neighbor(self, hit: dict[str, Any]) -> picture.Neighbor:
        return picture.Neighbor(self._digits.train[hit["id"]], hit["entity"]["digit"], hit["distance"])


def _ids(hits: Hits) -> list[list[int]]:
    return [[hit["id"] for hit in query] for query in hits]


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoFailed(otherwise)
