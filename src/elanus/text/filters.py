"""Token filters: each turns one token into none, one or several.

A filter sees tokens one by one and keeps nothing between them. So an analyzer applies its filters to every
distinct token once, however often it occurs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter, NotSupported
from elanus.text.normalizing import arabic_normalization, decimal_digits
from elanus.text.pinyin import PINYIN, pinyin_filter
from elanus.text.stop_lists import STOP_LISTS
from elanus.text.synonyms import synonym_filter
from elanus.text.tokenizers import library

Filter = Callable[[str], Sequence[str]]

_SYNONYM = "synonym"
_FILES = {
    "stop_words_file": "stop_words",
    "word_list_file": "word_list",
    "synonyms_file": "synonyms",
}
"""The parameters that refer to files of words, and those that hold the words themselves."""
_HAN = "\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_HAN_ONLY = re.compile(f"[{_HAN}]+")
_HAN_OR_WORD = re.compile(f"[{_HAN}A-Za-z0-9]+")
_LANGUAGE_LIST = re.compile(r"_(\w+)_")


def filter_from(given: object) -> Filter:
    """Return the filter that a client names, or describes by an object with its ``type``.

    Raises `InvalidParameter`.
    """
    if isinstance(given, str):
        if given in _PLAIN:
            return _PLAIN[given]()
        if given == PINYIN:
            return _pinyin({})
        if given in _DESCRIBED or given == _SYNONYM:
            raise InvalidParameter(f'filter {given} has parameters: write {{"type": "{given}", ..}}')
        raise InvalidParameter(f"build analyzer failed, filter not found :{given}: use one of {_names()}")
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"a filter is a name or an object with its type, but got {given!r}")
    name = given.get("type")
    if not isinstance(name, str):
        raise InvalidParameter(f"the type of a filter should be a string, but got {name!r}")
    if name in _PLAIN:
        _refuse_rest(name, given, frozenset())
        return _PLAIN[name]()
    _refuse_files(given)
    if name == PINYIN:
        return _pinyin(given)
    if name == _SYNONYM:
        _refuse_rest(name, given, frozenset({"synonyms", "expand"}))
        if "synonyms" not in given:
            raise InvalidParameter(f"filter {name} needs its parameter synonyms")
        return synonym_filter(given["synonyms"], given.get("expand", True))
    if name not in _DESCRIBED:
        raise InvalidParameter(f"build analyzer failed, filter not found :{name}: use one of {_names()}")
    key, make = _DESCRIBED[name]
    _refuse_rest(name, given, frozenset({key}))
    if key not in given:
        raise InvalidParameter(f"filter {name} needs its parameter {key}")
    return make(given[key])


def stop_words(words: object) -> Filter:
    """Drop these words. ``_english_`` among them names the list of a language."""
    what = "filter stop_words"
    dropped: set[str] = set()
    languages: list[Filter] = []
    for word in _texts(words, what):
        named = _LANGUAGE_LIST.fullmatch(word)
        if named is None:
            dropped.add(word)
        elif named[1] in STOP_LISTS:
            dropped |= STOP_LISTS[named[1]]
        else:
            languages.append(_tantivy("stopword", named[1], f"{what} {word}"))

    def keep(token: str) -> Sequence[str]:
        if token in dropped or not all(language(token) for language in languages):
            return ()
        return (token,)

    return keep


def _refuse_files(given: Mapping[str, object]) -> None:
    """Raise `NotSupported` if a tokenizer or a filter refers to a file of words."""
    for name in given.keys() & _FILES.keys():
        raise NotSupported(f"{name} is not supported by this release: put the words into {_FILES[name]}")


def stemmer(language: object) -> Filter:
    """Reduce words to their stems, by the Snowball rules of a language."""
    if not isinstance(language, str):
        raise InvalidParameter(f"the language of filter stemmer should be a string, but got {language!r}")
    return _tantivy("stemmer", language.lower(), "filter stemmer")


def _tantivy(kind: str, argument: Any, what: str) -> Filter:
    import tantivy

    raw = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw())
    make = getattr(tantivy.Filter, kind)
    try:
        built = raw.filter(make() if argument is None else make(argument)).build()
    except ValueError as error:
        raise InvalidParameter(f"{what}: {error}") from None
    analyze: Filter = built.analyze
    return analyze


def _pinyin(given: Mapping[str, object]) -> Filter:
    return pinyin_filter(given, library("pypinyin", PINYIN, "filter"))


def _texts(values: object, what: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidParameter(f"{what} should be a list of strings, but got {values!r}")
    return values


def _matching(pattern: re.Pattern[str]) -> Filter:
    return lambda token: (token,) if pattern.fullmatch(token) else ()


def _length(longest: object) -> Filter:
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 0:
        raise InvalidParameter(f"the max of filter length should be a number of bytes, but got {longest!r}")
    return lambda token: (token,) if len(token.encode()) <= longest else ()


def _decompounder(words: object) -> Filter:
    return _tantivy("split_compound", _texts(words, "filter decompounder word_list"), "filter decompounder")


def _regex(expression: object) -> Filter:
    if not isinstance(expression, str):
        raise InvalidParameter(f"the expr of filter regex should be a string, but got {expression!r}")
    try:
        pc.match_substring_regex(pa.array([""]), expression)
    except pa.ArrowInvalid as error:
        raise InvalidParameter(f"the expr of filter regex is no pattern: {expression}: {error}") from None
    # RE2 takes linear time; with `re` a pattern like (a+)+$ and one long word would stop the process.
    return lambda token: (token,) if pc.match_substring_regex(pa.scalar(token), expression).as_py() else ()


def _without_punctuation(token: str) -> Sequence[str]:
    """Drop a token that has any punctuation or white space in it, as the reference does."""
    return () if any(c.isspace() or unicodedata.category(c).startswith("P") for c in token) else (token,)


def _lowercase(token: str) -> Sequence[str]:
    return (token.lower(),)


_PLAIN: Mapping[str, Callable[[], Filter]] = {
    "lowercase": lambda: _lowercase,
    "asciifolding": lambda: _tantivy("ascii_fold", None, "filter asciifolding"),
    "alphanumonly": lambda: _tantivy("alphanum_only", None, "filter alphanumonly"),
    "cnalphanumonly": lambda: _matching(_HAN_OR_WORD),
    "cncharonly": lambda: _matching(_HAN_ONLY),
    "removepunct": lambda: _without_punctuation,
    "decimaldigit": lambda: decimal_digits,
    "arabic_normalization": lambda: arabic_normalization,
}
_DESCRIBED: Mapping[str, tuple[str, Callable[[object], Filter]]] = {
    "stop": ("stop_words", stop_words),
    "length": ("max", _length),
    "stemmer": ("language", stemmer),
    "decompounder": ("word_list", _decompounder),
    "regex": ("expr", _regex),
}
"""The filters with a parameter: its name, and how the filter is made from its value."""


def _names() -> str:
    return ", ".join((*_PLAIN, *_DESCRIBED, _SYNONYM, PINYIN))


def _refuse_rest(name: str, given: Mapping[str, object], known: frozenset[str]) -> None:
    for key in given.keys() - known - {"type"}:
        raise InvalidParameter(f"unknown option {key} of filter {name}")
