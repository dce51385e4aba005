"""The demo's own arithmetic, data and picture, without a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elanus.demo.data import SHIPPED_FILE, exact_neighbors, read, recall


def test_the_shipped_digits_are_as_described() -> None:
    digits = read(SHIPPED_FILE)
    assert digits.train.shape == (10_000, 784)
    assert digits.queries.shape == (500, 784)
    assert digits.train.dtype == digits.queries.dtype == np.float32
    assert (digits.train.min(), digits.train.max()) == (0, 255)
    assert set(digits.labels.tolist()) == set(range(10))
    assert SHIPPED_FILE.stat().st_size <= 3_000_000


def test_a_file_without_the_arrays_names_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", train=np.zeros((1, 4)))
    with pytest.raises(ValueError, match="test, train_label"):
        read(tmp_path / "x.npz")


def test_exact_neighbors_are_those_of_the_plain_definition() -> None:
    random = np.random.default_rng(7)
    rows = random.normal(size=(200, 16)).astype(np.float32)
    queries = random.normal(size=(5, 16)).astype(np.float32)
    plain = np.linalg.norm(queries[:, None] - rows[None], axis=2).argsort(axis=1)[:, :10]
    assert exact_neighbors(queries, rows, 10).tolist() == plain.tolist()


def test_recall_counts_what_was_found_in_any_order() -> None:
    exact = np.array([[1, 2], [3, 4]])
    assert recall([[2, 1], [3, 4]], exact) == 1.0
    assert recall([[2, 9], []], exact) == 0.25


@pytest.mark.slow
def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from elanus.demo.picture import Neighbor, Row, draw

    image = np.arange(16, dtype=np.float32)
    path = tmp_path / "new" / "picture.png"
    draw([Row(image, [Neighbor(image, 3, 25.0)]), Row(image, [])], path)
    assert path.read_bytes().startswith(b"\x89PNG")
