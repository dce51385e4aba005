"""Texts of users on an operator's terminal: descriptions, filters and errors may hold control characters.

A terminal obeys them: it changes its title, clears the screen, writes over lines, or shows text backwards.
"""

from __future__ import annotations

_KEPT = "\n\t"
_PICTURES = 0x2400
"""The characters from here on are the pictures of the control characters."""
_DELETE = 0x7F
_OTHERS = (*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Further control characters, and those that change the direction of what follows."""
_SHOWN = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in _KEPT},
    **dict.fromkeys(_OTHERS, "\ufffd"),
    _DELETE: "\u2421",
}


def harmless(text: str) -> str:
    """Return the text, of the same length, with visible characters in place of those that terminals obey."""
    return text.translate(_SHOWN)
