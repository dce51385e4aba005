"""The filter ``pinyin``: Chinese words become Latin tokens as well, so that they are found as they are typed.

Each character has one reading, its most usual one: ``行`` is ``xing`` in every word. Tones are left out, and
``ü`` is written ``v``, as on keyboards. Characters that have no reading are skipped, and a token without any
Chinese character stays as it is. The readings come from pypinyin (``elanus[chinese]``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elanus.core.errors import InvalidParameter

PINYIN = "pinyin"
_FORMS: Mapping[str, bool] = {
    "keep_original": True,
    "keep_full_pinyin": True,
    "keep_joined_full_pinyin": False,
    "keep_separate_first_letter": False,
}
"""The forms of a word that may become tokens, in their order, and whether they do by default."""


def pinyin_filter(given: Mapping[str, object], library: Any) -> Callable[[str], Sequence[str]]:
    """Return the filter of these options, with the module pypinyin. Raises `InvalidParameter`."""
    forms = {name: given.get(name, default) for name, default in _FORMS.items()}
    for name in given.keys() - _FORMS.keys() - {"type"}:
        raise InvalidParameter(f"unknown option {name} of filter {PINYIN}")
    for name, kept in forms.items():
        if not isinstance(kept, bool):
            raise InvalidParameter(f"the {name} of filter {PINYIN} should be true or false, but got {kept!r}")
    original, full, joined, initials = forms.values()

    def spelled(token: str) -> Sequence[str]:
        if token.isascii():
            return (token,)
        syllables: list[str] = [
            syllable for character in token for syllable in library.lazy_pinyin(character, errors="ignore")
        ]
        if not syllables:
            return (token,)
        words = [token] if original else []
        if full:
            words += syllables
        if joined:
            words.append("".join(syllables))
        if initials:
            words.append("".join(syllable[0] for syllable in syllables))
        return words

    return spelled
