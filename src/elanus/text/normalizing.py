"""Filters that give different spellings of a word one form."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_ARABIC = str.maketrans(
    {
        **dict.fromkeys("آأإ", "ا"),
        "ة": "ه",
        "ى": "ي",
        "\N{ARABIC TATWEEL}": None,
        **{chr(code): None for code in range(0x064B, 0x0660)},
    }
)
"""One form of alef, teh marbuta and alef maksura; no tatweel and no vowel signs."""


def normalized_arabic(token: str) -> str:
    """Return the token with one form of each letter, without vowel signs."""
    return token.translate(_ARABIC)


def arabic_normalization(token: str) -> Sequence[str]:
    """Drop a token of vowel signs alone; any other is normalized."""
    normalized = normalized_arabic(token)
    return (normalized,) if normalized else ()


def decimal_digits(token: str) -> Sequence[str]:
    """Write the decimal digits of any script as ASCII digits."""
    if token.isascii():
        return (token,)
    return ("".join(_ascii_digit(character) for character in token),)


def words_only(token: str) -> Sequence[str]:
    """Drop a token without letters and digits."""
    return (token,) if any(character.isalnum() for character in token) else ()


def _ascii_digit(character: str) -> str:
    value = unicodedata.decimal(character, None)
    return character if value is None else str(value)
