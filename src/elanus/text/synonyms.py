"""The filter ``synonym``: related words become tokens of a text as well, or instead.

A rule is a group of equal words, ``happy, joyful, cheerful``, or words and what replaces them,
``fast, quick => speedy``. With ``expand`` (the default) a token stays, followed by the others of its rules.
Without, a word of a group becomes the first of the group, and a word with replacements becomes these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from elanus.core.errors import InvalidParameter

_ARROW = "=>"


def synonym_filter(rules: object, expand: object) -> Callable[[str], Sequence[str]]:
    """Return the filter of these rules, texts. Raises `InvalidParameter`."""
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise InvalidParameter(f"filter synonym synonyms should be a list of strings, but got {rules!r}")
    if not isinstance(expand, bool):
        raise InvalidParameter(f"the expand of filter synonym should be true or false, but got {expand!r}")
    becomes: dict[str, dict[str, None]] = {}
    for rule in rules:
        for word, others in _pairs(rule, expand):
            becomes.setdefault(word, {}).update(dict.fromkeys(others))
    words: Mapping[str, tuple[str, ...]] = {word: tuple(others) for word, others in becomes.items()}
    return lambda token: words.get(token) or (token,)


def _pairs(rule: str, expand: bool) -> list[tuple[str, list[str]]]:
    """Return each word that the rule changes, with the words that it becomes."""
    left, arrow, right = rule.partition(_ARROW)
    words = _words(left)
    if not arrow:
        if not words:
            raise InvalidParameter(f"synonym rule {rule!r} has no words: write 'happy, joyful'")
        return [(word, [word, *words] if expand else [words[0]]) for word in words]
    targets = _words(right)
    if not words or not targets:
        raise InvalidParameter(
            f"synonym rule {rule!r} needs words on both sides: write 'fast, quick => speedy'"
        )
    return [(word, [word, *targets] if expand else targets) for word in words]


def _words(listed: str) -> list[str]:
    return [word for part in listed.split(",") if (word := part.strip())]
