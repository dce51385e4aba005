"""`random_sample`: a share of the rows, chosen by chance, and the same ones however they are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from filter_schemas import PLAIN, TEXT_KEY

from elanus.expr import compile_filter
from elanus.expr.sampling import sampled

KEYS = pa.array(range(100_000), pa.int64())


def test_a_sample_has_about_its_share_of_the_rows_and_of_the_matching_ones() -> None:
    for seed in range(5):
        chosen = sampled(KEYS, 0.1, seed)
        assert abs(chosen.sum() - 10_000) < 500  # five standard deviations
        assert abs(chosen[::2].sum() - 5_000) < 350
        assert sampled(KEYS, 1e-6, seed).sum() < 10


def test_seeds_give_independent_samples() -> None:
    one, other = sampled(KEYS, 0.5, 1), sampled(KEYS, 0.5, 2)
    assert abs((one & other).sum() - 25_000) < 700


def test_text_keys_are_sampled_too() -> None:
    texts = pa.array([f"key {number}" for number in range(20_000)])
    assert abs(sampled(texts, 0.25, 7).sum() - 5_000) < 350
    bound = compile_filter("key != 'key 1' and random_sample(0.25)", TEXT_KEY)
    assert abs(bound.evaluate({"key": texts}, len(texts)).sum() - 5_000) < 350


def test_a_row_is_chosen_or_not_whichever_rows_are_read_with_it() -> None:
    bound = compile_filter("tiny > 0 and random_sample(0.5)", PLAIN)
    tiny = pa.array(np.arange(100_000) % 3, pa.int8())
    mask = bound.evaluate({"id": KEYS, "tiny": tiny}, 100_000)
    assert abs(mask.sum() - 33_333) < 700
    some = pa.array(np.arange(0, 100_000, 7))
    part = bound.evaluate({"id": KEYS.take(some), "tiny": tiny.take(some)}, len(some))
    assert part.tolist() == mask[::7].tolist()


def test_every_compiled_filter_has_a_sample_of_its_own() -> None:
    masks = [compile_filter("random_sample(0.5)", PLAIN).evaluate({"id": KEYS}, 100_000) for _ in range(2)]
    assert 20_000 < (masks[0] & masks[1]).sum() < 30_000


@pytest.mark.parametrize("text", ["random_sample(0.5)", "id > 5 and random_sample(0.5)"])
def test_a_sample_is_known_for_what_it_is(text: str) -> None:
    assert compile_filter(text, PLAIN).is_random
    assert not compile_filter("id > 5", PLAIN).is_random
