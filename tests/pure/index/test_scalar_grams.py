"""The grams of many texts are those of one text after another, in every way to number them."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from elanus.index.scalar import grams
from elanus.index.scalar.grams import GramTexts, gram_texts, hashes_of

WORDS = ("", "a", "ab", "abab", "caffè", "日本語", "😀", "user-1", "user-2", "\x00", "z" * 9)


def some_texts(count: int) -> list[str]:
    random = Random(count)
    return [" ".join(random.choices(WORDS, k=random.randrange(5))) for _ in range(count)]


def one_by_one(texts: list[str], lengths: range) -> dict[int, list[int]]:
    """The numbers of the texts that have a gram, by its hash."""
    found: dict[int, set[int]] = {}
    for number, text in enumerate(texts):
        for length in lengths:
            for place in range(len(text) - length + 1):
                (gram,) = hashes_of(text[place : place + length], length).tolist()
                found.setdefault(gram, set()).add(number)
    return {gram: sorted(found[gram]) for gram in sorted(found)}


def as_dict(made: GramTexts) -> dict[int, list[int]]:
    assert (made.hashes.dtype, made.starts.dtype, made.texts.dtype) == (np.uint32, np.int64, np.uint32)
    assert len(made.starts) == len(made.hashes) + 1
    parts = zip(made.starts[:-1].tolist(), made.starts[1:].tolist(), strict=True)
    return dict(
        zip(made.hashes.tolist(), (made.texts[first:last].tolist() for first, last in parts), strict=True)
    )


@pytest.mark.parametrize("table_max", [0, 300, 1 << 24], ids=["hashed", "mixed", "by table"])
@pytest.mark.parametrize("together", [3, 1 << 15])
@pytest.mark.parametrize("lengths", [range(1, 2), range(1, 4), range(2, 5), range(7, 10)], ids=str)
def test_each_gram_has_its_texts(
    lengths: range, together: int, table_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grams, "_TOGETHER", together)
    monkeypatch.setattr(grams, "_TABLE_MAX", table_max)
    for texts in ([], [""], ["a"], ["aaaa"], some_texts(40)):
        column = pa.array(["cut off", *texts, "too"], pa.large_string()).slice(1, len(texts))
        assert as_dict(gram_texts(column, lengths)) == one_by_one(texts, lengths)


def test_grams_with_the_same_hash_share_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = grams._hashed
    monkeypatch.setattr(grams, "_hashed", lambda runs: hashed(runs) % np.uint32(5))
    texts = some_texts(40)
    made = gram_texts(pa.array(texts, pa.large_string()), range(1, 4))
    assert as_dict(made) == one_by_one(texts, range(1, 4))
    assert len(made.hashes) == 5


def test_the_hashes_in_files_stay_what_they_are() -> None:
    assert hashes_of("caffè 日本", 3).tolist() == [
        38112427,
        2474624883,
        1414495932,
        1068532045,
        10903469,
        227058316,
    ]
    assert hashes_of("ab", 3).tolist() == []


def test_a_gram_is_hashed_once_however_many_texts_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    original = grams._hashed
    monkeypatch.setattr(grams, "_hashed", lambda runs: hashed.append(len(runs)) or original(runs))
    gram_texts(pa.array([f"text {n % 10}" for n in range(10_000)], pa.large_string()), range(2, 4))
    assert hashed == [14, 13], "the grams of 'text ' and one of each that ends with a digit"
