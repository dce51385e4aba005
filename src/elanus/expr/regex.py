"""Patterns of ``=~`` and ``!~``: regular expressions in RE2's syntax, which need only match a part of a text.

Arrow matches with RE2, whose time is linear in the length of the text whatever the pattern is. As in the
reference, a dot matches a line break too, unless the pattern says ``(?-s)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_DOT_MATCHES_ALL = "(?s)"
_ARROWS_WORDS = "Invalid regular expression: "


@dataclass(frozen=True, slots=True)
class RegexPattern:
    """``text`` is the pattern as written."""

    text: str

    def matches(self, texts: pa.Array) -> pa.Array:
        """Which strings contain a match; null for null. shape (n,) → booleans of shape (n,)."""
        return pc.match_substring_regex(texts, _DOT_MATCHES_ALL + self.text)


def regex_pattern(text: str) -> RegexPattern:
    """Read a pattern. Raises `ValueError`, which says what is wrong with it, if RE2 cannot."""
    pattern = RegexPattern(text)
    try:
        pattern.matches(pa.array([""]))  # without any text Arrow does not read the pattern
    except pa.ArrowInvalid as problem:
        raise ValueError(_worded(str(problem))) from None
    return pattern


def _worded(problem: str) -> str:
    """RE2's message in the words of Go's parser, which clients of the reference know."""
    message = problem.removeprefix(_ARROWS_WORDS).replace(f": {_DOT_MATCHES_ALL}", ": ", 1)
    return message.replace("missing )", "missing closing )", 1).replace("missing ]", "missing closing ]", 1)
