"""Patterns of ``like``: ``%`` matches any text, ``_`` one character, and a backslash escapes either.

Most patterns are a plain beginning, end or middle, and Arrow has a faster kernel for each of those than for
the general case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_PART = re.compile(r"\\([%_\\])|([%_])|(\\|[^\\%_]+)")
_SPECIAL = re.compile(r"[\\%_]")


@dataclass(frozen=True, slots=True, eq=False)
class LikePattern:
    """A parsed pattern. ``text`` is the pattern as written, ``arrow_text`` the same in Arrow's syntax.

    ``plain`` is the text between leading and trailing ``%`` signs when it holds no further wildcard;
    ``open_start`` and ``open_end`` say whether there are such signs.
    """

    text: str
    arrow_text: str
    plain: str | None
    open_start: bool
    open_end: bool

    @property
    def prefix(self) -> str | None:
        """The text that every match begins with, if the pattern requires nothing else."""
        return self.plain if self.open_end and not self.open_start else None

    @property
    def is_equality(self) -> bool:
        """Whether the pattern has no wildcard at all."""
        return self.plain is not None and not self.open_start and not self.open_end

    def matches(self, texts: pa.Array) -> pa.Array:
        """Which strings match; null for null. shape (n,) → booleans of shape (n,)."""
        if self.plain is None:
            return pc.match_like(texts, self.arrow_text)
        if self.open_start and self.open_end:
            return pc.match_substring(texts, self.plain)
        if self.open_start:
            return pc.ends_with(texts, self.plain)
        if self.open_end:
            return pc.starts_with(texts, self.plain)
        return pc.equal(texts, pa.scalar(self.plain, texts.type))


def like_pattern(text: str) -> LikePattern:
    """Read a pattern. A backslash before anything but ``%``, ``_`` and itself is a plain backslash."""
    parts = [(escaped or plain, wild) for escaped, wild, plain in _PART.findall(text)]
    arrow_text = "".join(wild or _SPECIAL.sub(r"\\\g<0>", plain) for plain, wild in parts)
    inner = list(parts)
    while inner and inner[0][1] == "%":
        inner.pop(0)
    open_start = len(inner) < len(parts)
    while inner and inner[-1][1] == "%":
        inner.pop()
    open_end = bool(parts) and parts[-1][1] == "%"
    plain_text = None if any(wild for _, wild in inner) else "".join(plain for plain, _ in inner)
    return LikePattern(text, arrow_text, plain_text, open_start, open_end)
