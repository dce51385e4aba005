"""Analyzers: a tokenizer and the filters behind it, from a client's parameters.

``{"type": "english"}`` names a built-in analyzer; ``{"tokenizer": "standard", "filter": ["lowercase"]}``
describes one. No parameters mean ``standard``.

=========  ==========  ==================================================================================
built-in   tokenizer   filters
=========  ==========  ==================================================================================
standard   standard    lowercase
english    standard    lowercase, stemmer (English), stop (``_english_``)
chinese    jieba       cnalphanumonly
arabic     standard    lowercase, decimaldigit, arabic_normalization, stemmer (Arabic), stop (``_arabic_``)
thai       thai        lowercase, decimaldigit, stop (``_thai_``)
=========  ==========  ==================================================================================

Each takes ``stop_words`` as well.

A column is analyzed as a whole: filters see each distinct token once, and the rest is arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.json_texts import json_value
from elanus.text import languages
from elanus.text.filters import Filter, filter_from, stop_words
from elanus.text.normalizing import words_only
from elanus.text.synonyms import Synonyms
from elanus.text.tokenizers import THAI, Tokenizer, tokenizer_from

Int32s = npt.NDArray[np.int32]

CHUNK_TEXTS = 8192
"""Texts that are cut into Python strings at a time: their pieces take ten times as much memory as they do."""
SYNONYMS_MAX = 10_000
"""Each of several filters multiplies the words that the ones before it made."""
_ANALYZERS_KEPT = 8
"""Clients describe analyzers at will, and one with a dictionary of its own takes 25 MB. Those of fields are
kept by `elanus.text.fields`."""
_NONE = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Token:
    """``start`` and ``end``: bytes of the text; ``position``: the number of tokens cut before it."""

    text: str
    start: int
    end: int
    position: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of many texts, one after the other.

    ``codes``: the place of each in ``vocabulary``, whose texts are distinct; ``rows``: the text that it is
    from, ascending; ``positions``: within the text, as cut by the tokenizer. All int32 (tokens,).
    """

    vocabulary: pa.Array
    codes: Int32s
    rows: Int32s
    positions: Int32s


class Analyzer:
    """Immutable; for any number of threads."""

    def __init__(self, tokenizer: Tokenizer, filters: Sequence[Filter]) -> None:
        self._tokenizer = tokenizer
        self._filters = tuple(filters)

    def words(self, text: str) -> list[str]:
        """Return the texts of the tokens."""
        return [word for cut in self._tokenizer.words(text) for word in self._filtered(cut)]

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens with their places."""
        found = []
        for position, (cut, start, end) in enumerate(self._tokenizer.spans(text)):
            kept = self._filtered(cut)
            if kept:
                first = len(text[:start].encode())
                last = first + len(text[start:end].encode())
                found += [Token(word, first, last, position) for word in kept]
        return found

    def tokens_of(self, texts: Sequence[str | None] | pa.Array) -> Tokens:
        """Analyze many texts, or a column of strings; null has no tokens. Some texts are cut at a time."""
        places: dict[str, int] = {}
        codes_of: dict[str, list[int]] = {}
        parts = [
            self._part(_strings(texts[start : start + CHUNK_TEXTS]), start, places, codes_of)
            for start in range(0, len(texts), CHUNK_TEXTS)
        ]
        codes, rows, positions = (np.concatenate([_NONE, *(part[n] for part in parts)]) for n in range(3))
        return Tokens(pa.array(list(places), pa.string()), codes, rows, positions)

    def _part(
        self,
        texts: Sequence[str | None],
        first_row: int,
        places: dict[str, int],
        codes_of: dict[str, list[int]],
    ) -> tuple[Int32s, Int32s, Int32s]:
        """Return codes, rows and positions. ``places``: the vocabulary; ``codes_of``: known pieces of texts.

        Both grow.
        """
        cuts: list[str] = []
        counts = np.zeros(len(texts), dtype=np.int64)
        for row, text in enumerate(texts):
            if text:
                words = self._tokenizer.words(text)
                counts[row] = len(words)
                cuts += words
        encoded = pa.array(cuts, pa.string()).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        for cut in distinct:
            if cut not in codes_of:
                codes_of[cut] = [places.setdefault(word, len(places)) for word in self._filtered(cut)]
        kept = [codes_of[cut] for cut in distinct]
        fan = np.array([len(codes) for codes in kept], dtype=np.int64)
        flat = np.array([code for codes in kept for code in codes], dtype=np.int32)
        of_cut = encoded.indices.to_numpy().astype(np.int64)
        emitted = fan[of_cut]
        ends = np.cumsum(emitted)
        firsts = np.cumsum(fan) - fan
        total = int(ends[-1]) if len(ends) else 0
        sources = np.arange(total) + np.repeat(firsts[of_cut] - (ends - emitted), emitted)
        starts = np.cumsum(counts) - counts
        rows = np.repeat(np.arange(len(texts)), counts)
        positions = np.arange(len(cuts)) - starts[rows]
        return (
            flat[sources],
            np.repeat(rows + first_row, emitted).astype(np.int32),
            np.repeat(positions, emitted).astype(np.int32),
        )

    def _filtered(self, cut: str) -> Sequence[str]:
        kept: Sequence[str] = (cut,)
        for narrow in self._filters:
            kept = narrow(kept[0]) if len(kept) == 1 else [word for token in kept for word in narrow(token)]
        return kept


def _strings(texts: Sequence[str | None] | pa.Array) -> Sequence[str | None]:
    strings: Sequence[str | None] = texts.to_pylist() if isinstance(texts, pa.Array) else texts
    return strings


@lru_cache(_ANALYZERS_KEPT)
def analyzer_from(params: str) -> Analyzer:
    """Return the analyzer that a client describes in JSON; "" and {} mean the standard one.

    Raises `InvalidParameter`, and `NotSupported` for a library that is not installed.
    """
    return analyzer_of(decoded(params, "analyzer params") if params else {})


def decoded(text: str, what: str) -> Mapping[str, object]:
    """Return the JSON object in a text. Raises `InvalidParameter`."""
    try:
        given = json_value(text)
    except ValueError as error:
        raise InvalidParameter(f"{what} should be JSON, but got {text!r}: {error}") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidParameter(f"{what} should be a json map, but got {text!r}")
    return given


def analyzer_of(given: Mapping[str, object]) -> Analyzer:
    """As `analyzer_from`, of a decoded description."""
    filters: list[Filter] = []
    tokenizer: object
    if "type" in given:
        name = given["type"]
        if not isinstance(name, str):
            raise InvalidParameter(f"analyzer type should be string, but got {name!r}")
        if name not in _BUILT_IN:
            raise InvalidParameter(
                f"unknown build-in analyzer type: {name}: use one of {', '.join(_BUILT_IN)}"
            )
        (tokenizer, own), known = _BUILT_IN[name], {"type", "stop_words", "filter"}
        filters = [filter_from(one) for one in own]
        if "stop_words" in given:
            filters.append(stop_words(given["stop_words"]))
    elif not given:
        tokenizer, known, filters = "standard", set(), [filter_from("lowercase")]
    elif "tokenizer" not in given:
        raise InvalidParameter(f"tokenizer name or type must be set, but got {dict(given)!r}")
    else:
        tokenizer, known = given["tokenizer"], {"tokenizer", "filter"}
    for key in given.keys() - known:
        raise InvalidParameter(f"unknown analyzer option key: {key}")
    added = given.get("filter", [])
    if not isinstance(added, list):
        raise InvalidParameter(f"filter params should be array, but got {added!r}")
    filters += [filter_from(one) for one in added]
    widest = math.prod(one.widest for one in filters if isinstance(one, Synonyms))
    if widest > SYNONYMS_MAX:
        raise InvalidParameter(
            f"the synonym filters may turn one word into up to {widest} words, more than {SYNONYMS_MAX}: "
            "use fewer such filters, or smaller groups of words"
        )
    if THAI in (tokenizer, isinstance(tokenizer, Mapping) and tokenizer.get("type")):
        filters.insert(0, words_only)  # after the cut: positions count what it drops
    return Analyzer(_tokenizer(tokenizer), filters)


def _stemmer(language: str) -> Mapping[str, object]:
    return {"type": "stemmer", "language": language}


def _stop(word: str) -> Mapping[str, object]:
    return {"type": "stop", "stop_words": [word]}


def _tokenizer(given: object) -> Tokenizer:
    if isinstance(given, Mapping) and given.get("type") == languages.NAME:
        return languages.by_language(given, analyzer_of)
    return languages.by_language({}, analyzer_of) if given == languages.NAME else tokenizer_from(given)


_BUILT_IN: Mapping[str, tuple[str, Sequence[object]]] = {
    "standard": ("standard", ["lowercase"]),
    "english": ("standard", ["lowercase", _stemmer("english"), _stop("_english_")]),
    "chinese": ("jieba", ["cnalphanumonly"]),
    "arabic": (
        "standard",
        ["lowercase", "decimaldigit", "arabic_normalization", _stemmer("arabic"), _stop("_arabic_")],
    ),
    "thai": (THAI, ["lowercase", "decimaldigit", _stop("_thai_")]),
}
"""The tokenizer and the filters of each built-in analyzer."""
