"""The filter ``synonym``: related words become tokens of a text as well, or instead.

A rule is a group of equal words, ``happy, joyful, cheerful``, or words and what replaces them,
``fast, quick => speedy``. With ``expand`` (the default) a token stays, followed by the others of its rules.
Without, a word of a group becomes the first of the group, and a word with replacements becomes these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from elanus.core.errors import InvalidParameter

_ARROW = "=>"


class Synonyms:
    """A filter. ``becomes``: the lists of words that a word becomes; groups of equal words share one.

    ``widest``: how many words a word becomes at most.
    """

    def __init__(self, becomes: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._becomes = becomes
        self.widest = max((sum(map(len, lists)) for lists in becomes.values()), default=1)

    def __call__(self, token: str) -> Sequence[str]:
        lists = self._becomes.get(token)
        return (token,) if lists is None else tuple(dict.fromkeys(chain.from_iterable(lists)))


def synonym_filter(rules: object, expand: object) -> Synonyms:
    """Return the filter of these rules, texts. Raises `InvalidParameter`."""
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise InvalidParameter(f"filter synonym synonyms should be a list of strings, but got {rules!r}")
    if not isinstance(expand, bool):
        raise InvalidParameter(f"the expand of filter synonym should be true or false, but got {expand!r}")
    becomes: dict[str, list[Sequence[str]]] = {}
    for rule in rules:
        words, others = _parsed(rule, expand)
        for word in words:
            becomes.setdefault(word, [(word,)] if expand else []).append(others)
    return Synonyms(becomes)


def _parsed(rule: str, expand: bool) -> tuple[list[str], list[str]]:
    """Return the words that the rule changes, and those that each of them becomes."""
    left, arrow, right = rule.partition(_ARROW)
    words = _words(left)
    if not arrow:
        if not words:
            raise InvalidParameter(f"synonym rule {rule!r} has no words: write 'happy, joyful'")
        return words, words if expand else words[:1]
    targets = _words(right)
    if not words or not targets:
        raise InvalidParameter(
            f"synonym rule {rule!r} needs words on both sides: write 'fast, quick => speedy'"
        )
    return words, targets


def _words(listed: str) -> list[str]:
    return [word for part in listed.split(",") if (word := part.strip())]
