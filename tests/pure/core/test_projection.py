"""Principal axes of a sample: as good as a full decomposition, the same each time, and never undefined."""

from __future__ import annotations

import numpy as np
import pytest

from elanus.core.projection import projected


def best_share(vectors: np.ndarray) -> float:
    """The share of the variance that the two principal axes show, by a full decomposition."""
    values = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2
    return float(values[:2].sum() / values.sum())


@pytest.mark.parametrize("shape", [(500, 64), (40, 300), (2, 5), (3, 1), (1, 4)])
def test_the_axes_show_nearly_as_much_as_any_could(shape: tuple[int, int]) -> None:
    vectors = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    points, share = projected(vectors)
    assert points.shape == (shape[0], 2)
    if shape[0] > 1:
        assert best_share(vectors) * 0.9 <= share <= 1.0


def test_two_strong_directions_are_found_exactly() -> None:
    rng = np.random.default_rng(2)
    plane = rng.standard_normal((300, 2)) * (9.0, 4.0)
    axes = np.linalg.qr(rng.standard_normal((96, 2)))[0]
    points, share = projected(plane @ axes.T + 5.0 + rng.standard_normal((300, 96)) * 0.01)
    assert share > 0.999
    near, far = (np.linalg.norm(one[:, None] - one[None], axis=2) for one in (points, plane))
    np.testing.assert_allclose(near, far, atol=0.5)


def test_clusters_stay_apart() -> None:
    rng = np.random.default_rng(3)
    centers = rng.standard_normal((3, 128)) * 10
    points, _ = projected(np.concatenate([center + rng.standard_normal((50, 128)) for center in centers]))
    groups = points.reshape(3, 50, 2)
    spread = max(np.linalg.norm(group - group.mean(axis=0), axis=1).max() for group in groups)
    means = [group.mean(axis=0) for group in groups]
    assert min(np.linalg.norm(means[a] - means[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > 2 * spread


def test_the_same_sample_gives_the_same_picture() -> None:
    vectors = np.random.default_rng(4).standard_normal((50, 16)).astype(np.float32)
    np.testing.assert_array_equal(projected(vectors).points, projected(vectors.copy()).points)


@pytest.mark.parametrize("vectors", [np.zeros((0, 8)), np.ones((7, 8)), np.ones((1, 8), np.int8)])
def test_a_sample_without_variance_is_one_point(vectors: np.ndarray) -> None:
    points, share = projected(vectors)
    assert (points.shape, share) == ((len(vectors), 2), 1.0)
    assert not points.any()
