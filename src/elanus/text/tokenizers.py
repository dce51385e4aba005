"""Tokenizers: how a text is cut, before filters see the pieces.

``standard`` cuts at everything that is no letter and no digit, ``whitespace`` at ASCII blanks. The others
need a library, which is in an extra: ``jieba`` finds Chinese words (``elanus[chinese]``, the same engine as
the reference's), ``lindera`` Japanese ones (``elanus[japanese]``), and ``icu`` the words of any language,
with the blanks and marks between them as tokens of their own (``elanus[icu]``). ``thai`` is ``icu``, and the
analyzer drops the blanks and marks. ``language_identifier`` is in
`elanus.text.languages`.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Any

from elanus.core.errors import InvalidParameter, NotSupported

_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_WITHOUT_BLANKS = re.compile(r"[^ \t\n\f\r]+")
_OF_OTHER_RELEASES = frozenset({"char_group"})
THAI = "thai"
_NAMES = "standard, whitespace, jieba, lindera, icu, thai or language_identifier"
_DEFAULT = "_default_"
_MODES = {"exact": "default", "search": "search"}

Span = tuple[str, int, int]
"""A token, and where it begins and ends in the text, in characters."""


class Tokenizer(ABC):
    @abstractmethod
    def words(self, text: str) -> list[str]:
        """Return the tokens of a text, in their order. A token's position is its place in the list."""

    @abstractmethod
    def spans(self, text: str) -> list[Span]:
        """As `words`, with the places of the tokens in the text."""


class _Standard(Tokenizer):
    def words(self, text: str) -> list[str]:
        if text.isascii():
            return _ASCII_WORD.findall(text)
        words: list[str] = _simple().analyze(text)
        return words

    def spans(self, text: str) -> list[Span]:
        if text.isascii():
            return _spans(_ASCII_WORD, text)
        tokens = _simple().pre_tokenize(text).tokens
        return [(token.text, token.char_offset_from, token.char_offset_to) for token in tokens]


@cache
def _simple() -> Any:
    import tantivy

    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).build()


class _Whitespace(Tokenizer):
    def words(self, text: str) -> list[str]:
        return _WITHOUT_BLANKS.findall(text)

    def spans(self, text: str) -> list[Span]:
        return _spans(_WITHOUT_BLANKS, text)


def _spans(pattern: re.Pattern[str], text: str) -> list[Span]:
    return [(found.group(), found.start(), found.end()) for found in pattern.finditer(text)]


class _Jieba(Tokenizer):
    """``mode``: rjieba's; in ``search`` the parts of a long word are tokens next to the word."""

    def __init__(self, engine: Any, mode: str, hmm: bool) -> None:
        self._engine = engine
        self._mode = mode
        self._hmm = hmm

    def words(self, text: str) -> list[str]:
        return [word for word, _, _ in self.spans(text)]

    def spans(self, text: str) -> list[Span]:
        spans: list[Span] = self._engine.tokenize(text, self._mode, self._hmm)
        return spans


class _Icu(Tokenizer):
    def __init__(self, breaker: Any) -> None:
        self._breaker = breaker

    def words(self, text: str) -> list[str]:
        return list(self._breaker(text, ""))

    def spans(self, text: str) -> list[Span]:
        words = self.words(text)  # the library's own places count UTF-16 units
        ends = list(accumulate(map(len, words)))
        return [(word, end - len(word), end) for word, end in zip(words, ends, strict=True)]


class _Lindera(Tokenizer):
    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def words(self, text: str) -> list[str]:
        return [token.surface for token in self._engine.tokenize(text)]

    def spans(self, text: str) -> list[Span]:
        content = text.encode()
        return [
            (
                token.surface,
                len(content[: token.byte_start].decode()),
                len(content[: token.byte_end].decode()),
            )
            for token in self._engine.tokenize(text)
        ]


def tokenizer_from(given: object) -> Tokenizer:
    """Return the tokenizer that a client names, or describes by an object with its ``type``.

    ``language_identifier`` is not among them. Raises `InvalidParameter`, and `NotSupported` for one whose
    library is not installed, or that this release lacks.
    """
    params: Mapping[str, object] = {}
    if isinstance(given, Mapping):
        params, given = given, given.get("type")
    if not isinstance(given, str):
        raise InvalidParameter(f"tokenizer name should be string, but got {given!r}")
    if given in ("standard", "whitespace"):
        refuse_rest(given, params, frozenset())
        return _Standard() if given == "standard" else _Whitespace()
    if given == "jieba":
        return _jieba(params)
    if given in ("icu", THAI):
        refuse_rest(given, params, frozenset())
        return _Icu(library("icu4py.breakers", "icu").WordBreaker)
    if given == "lindera":
        return _lindera(params)
    if given in _OF_OTHER_RELEASES:
        raise NotSupported(f"tokenizer {given} is not supported by this release: use {_NAMES}")
    raise InvalidParameter(f"unsupported tokenizer: {given}: use {_NAMES}")


_EXTRAS = {
    "jieba": "chinese",
    "lindera": "japanese",
    "icu": "icu",
    "whatlang": "languages",
    "lingua": "lingua",
    "pinyin": "chinese",
}


def library(module: str, part: str, kind: str = "tokenizer") -> Any:
    """Import the library that a tokenizer or filter needs. Raises `NotSupported` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotSupported(
            f"{kind} {part} needs a library that is not installed: pip install 'elanus[{_EXTRAS[part]}]'"
        ) from None


def _lindera(params: Mapping[str, object]) -> Tokenizer:
    refuse_rest("lindera", params, frozenset({"dict_kind", "filter"}))
    dictionary, filters = params.get("dict_kind"), params.get("filter", [])
    if dictionary != "ipadic":
        raise NotSupported(
            f"the lindera dictionary {dictionary!r} is not supported by this release: use ipadic"
        )
    if not isinstance(filters, list) or not all(isinstance(one, Mapping) for one in filters):
        raise InvalidParameter(f"the filter of lindera should be a list of objects, but got {filters!r}")
    lindera = library("lindera", "lindera")
    builder = lindera.TokenizerBuilder()
    builder.set_mode("normal")
    builder.set_dictionary("embedded://ipadic")
    try:
        for one in filters:
            builder.append_token_filter(one.get("kind"), {k: v for k, v in one.items() if k != "kind"})
        return _Lindera(builder.build())
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidParameter(f"lindera refuses its filter {filters}: {error}") from None


def _jieba(params: Mapping[str, object]) -> Tokenizer:
    """Options that jieba does not have are ignored, as in the reference."""
    if "extra_dict_file" in params:
        raise NotSupported("extra_dict_file is not supported by this release: put the words into dict")
    mode, hmm, words = params.get("mode", "search"), params.get("hmm", True), params.get("dict", [_DEFAULT])
    if mode not in _MODES:
        raise InvalidParameter(f"jieba mode {mode!r} is unknown: use exact or search")
    if not isinstance(hmm, bool):
        raise InvalidParameter(f"jieba hmm should be true or false, but got {hmm!r}")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidParameter(f"jieba dict should be a list of strings, but got {words!r}")
    if "_extend_default_" in words:
        raise NotSupported(
            f'the jieba dict _extend_default_ is not supported by this release: use "{_DEFAULT}"'
        )
    engine = library("rjieba", "jieba")
    own = [word for word in words if word not in ("", _DEFAULT)]
    if own or _DEFAULT not in words:
        engine = engine.Jieba() if _DEFAULT in words else engine.Jieba.empty()
        for word in own:
            engine.add_word(word, None, None)  # as frequent as it takes to be found
    return _Jieba(engine, _MODES[str(mode)], hmm)


def refuse_rest(name: str, params: Mapping[str, object], known: frozenset[str]) -> None:
    """Raise `InvalidParameter` for a parameter of a tokenizer that it does not have."""
    for key in params.keys() - known - {"type"}:
        raise InvalidParameter(f"unknown option {key} of tokenizer {name}")
