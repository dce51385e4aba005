"""Highlights: the parts of a text around the words that were searched, with tags around these words.

A fragment begins ``offset`` characters before a match and has ``size`` characters. Further matches within it
are tagged too, and one that goes beyond its end extends it. The next match begins the next fragment. The
rules are the reference's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]
"""The first character and the one after the last."""


@dataclass(frozen=True, slots=True)
class Highlighting:
    """How to highlight. ``of_search``: the words of a full-text search are tagged.

    ``queries``: fields, and texts whose words are tagged there. ``pre_tags`` and ``post_tags``: used in turn
    by the matches of a fragment. ``size`` and ``offset``: in characters.
    """

    of_search: bool = False
    queries: tuple[tuple[str, str], ...] = ()
    pre_tags: tuple[str, ...] = ("<em>",)
    post_tags: tuple[str, ...] = ("</em>",)
    size: int = 100
    offset: int = 0
    fragments_max: int = 5


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, those that touch or overlap as one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def fragments(text: str, spans: Sequence[Span], how: Highlighting) -> list[str]:
    """Return the fragments of a text. ``spans``: its matches, as `merged` returns them."""
    found: list[tuple[int, int, list[Span]]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            first, last, matches = found[-1]
            found[-1] = (first, max(last, end), [*matches, (start, end)])
            continue
        if len(found) >= how.fragments_max:
            break
        first = max(0, start - how.offset)
        found.append((first, min(max(end, first + how.size), len(text)), [(start, end)]))
    return [_tagged(text, first, last, matches, how) for first, last, matches in found]


def _tagged(text: str, first: int, last: int, matches: Sequence[Span], how: Highlighting) -> str:
    parts, cursor = [], first
    for n, (start, end) in enumerate(matches):
        pre, post = how.pre_tags[n % len(how.pre_tags)], how.post_tags[n % len(how.post_tags)]
        parts += [text[cursor:start], pre, text[start:end], post]
        cursor = end
    return "".join([*parts, text[cursor:last]])
