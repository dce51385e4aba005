"""Text filters that tolerate typing errors: which tokens of a column are near a word.

The distance is the number of edits: a character inserted, deleted or replaced, or two neighbors exchanged.
No part of a token is edited twice. It is computed for all tokens of a similar length at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.text.match import Mask, TokenColumn


def near_rows(tokens: TokenColumn, words: Sequence[str], most: int) -> Mask:
    """Return which texts contain a token that at most ``most`` edits turn into one of the words. (rows,)."""
    mask = np.zeros(tokens.count, dtype=np.bool_)
    for word in words:
        for rows, _ in tokens.occurrences(near_words(tokens.vocabulary, word, most)):
            mask[rows] = True
    return mask


def near_words(vocabulary: pa.Array, word: str, most: int) -> pa.Array:
    """Return the strings of ``vocabulary`` that at most ``most`` edits turn into ``word``, in their order."""
    lengths = pc.utf8_length(vocabulary).to_numpy(zero_copy_only=False)
    similar = np.flatnonzero(np.abs(lengths - len(word)) <= most)
    if not len(similar):
        return vocabulary.slice(0, 0)
    candidates = vocabulary.take(pa.array(similar))
    longest = max(1, int(lengths[similar].max()))
    texts = np.array(candidates.to_pylist(), dtype=f"<U{longest}")
    letters = texts.view(np.uint32).reshape(len(texts), longest)
    distances = _edits(letters, np.array([ord(letter) for letter in word], dtype=np.uint32))
    return candidates.filter(pa.array(distances[np.arange(len(similar)), lengths[similar]] <= most))


def _edits(letters: npt.NDArray[np.uint32], word: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Return the edits between the word and every beginning of every candidate.

    ``letters``: code points, (candidates, longest). The outcome: (candidates, longest + 1).
    """
    count, longest = letters.shape
    before = current = np.tile(np.arange(longest + 1, dtype=np.int32), (count, 1))
    for place, letter in enumerate(word):
        earlier, before = before, current
        same = letters == letter
        current = np.empty_like(before)
        current[:, 0] = place + 1
        # what costs no look at the same row: the letter is deleted, or replaced unless it is the same
        current[:, 1:] = np.minimum(before[:, 1:] + 1, before[:, :-1] + ~same)
        if place:
            exchanged = same[:, :-1] & (letters[:, 1:] == word[place - 1])
            swapped = np.where(exchanged, earlier[:, :-2] + 1, current[:, 2:])
            current[:, 2:] = np.minimum(current[:, 2:], swapped)
        for end in range(1, longest + 1):
            np.minimum(current[:, end], current[:, end - 1] + 1, out=current[:, end])
    return current
