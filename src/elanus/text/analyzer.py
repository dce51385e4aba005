"""Analyzers: a tokenizer and the filters behind it, from a client's parameters.

``{"type": "english"}`` names a built-in analyzer; ``{"tokenizer": "standard", "filter": ["lowercase"]}``
describes one. No parameters mean ``standard``.

=========  ==========  =================================================
built-in   tokenizer   filters
=========  ==========  =================================================
standard   standard    lowercase
english    standard    lowercase, stemmer (English), stop (``_english_``)
chinese    jieba       cnalphanumonly
=========  ==========  =================================================

Each takes ``stop_words`` as well.

A column is analyzed as a whole: filters see each distinct token once, and the rest is arrays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.text.filters import Filter, filter_from, stemmer, stop_words
from elanus.text.tokenizers import Tokenizer, tokenizer_from

_ANALYZERS_KEPT = 256


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
    from, ascending; ``positions``: within the text, as cut by the tokenizer. All int64 (tokens,).
    """

    vocabulary: pa.Array
    codes: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]


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

    def tokens_of(self, texts: Sequence[str | None]) -> Tokens:
        """Analyze many texts; null has no tokens."""
        cuts: list[str] = []
        counts = np.zeros(len(texts), dtype=np.int64)
        for row, text in enumerate(texts):
            if text:
                words = self._tokenizer.words(text)
                counts[row] = len(words)
                cuts += words
        encoded = pa.array(cuts, pa.string()).dictionary_encode()
        places: dict[str, int] = {}
        kept = [
            [places.setdefault(word, len(places)) for word in self._filtered(cut)]
            for cut in encoded.dictionary.to_pylist()
        ]
        fan = np.array([len(codes) for codes in kept], dtype=np.int64)
        flat = np.array([code for codes in kept for code in codes], dtype=np.int64)
        of_cut = encoded.indices.to_numpy().astype(np.int64)
        emitted = fan[of_cut]
        ends = np.cumsum(emitted)
        firsts = np.cumsum(fan) - fan
        total = int(ends[-1]) if len(ends) else 0
        sources = np.arange(total) + np.repeat(firsts[of_cut] - (ends - emitted), emitted)
        starts = np.cumsum(counts) - counts
        rows = np.repeat(np.arange(len(texts)), counts)
        positions = np.arange(len(cuts)) - starts[rows]
        return Tokens(
            pa.array(list(places), pa.string()),
            flat[sources],
            np.repeat(rows, emitted),
            np.repeat(positions, emitted),
        )

    def _filtered(self, cut: str) -> Sequence[str]:
        kept: Sequence[str] = (cut,)
        for narrow in self._filters:
            kept = narrow(kept[0]) if len(kept) == 1 else [word for token in kept for word in narrow(token)]
        return kept


@lru_cache(_ANALYZERS_KEPT)
def analyzer_from(params: str) -> Analyzer:
    """Return the analyzer that a client describes in JSON; "" and {} mean the standard one.

    Raises `InvalidParameter`, and `NotSupported` for a library that is not installed.
    """
    return analyzer_of(decoded(params, "analyzer params") if params else {})


def decoded(text: str, what: str) -> Mapping[str, object]:
    """Return the JSON object in a text. Raises `InvalidParameter`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(f"{what} should be JSON, but got {text!r}: {error}") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidParameter(f"{what} should be a json map, but got {text!r}")
    return given


def analyzer_of(given: Mapping[str, object]) -> Analyzer:
    """As `analyzer_from`, of a decoded description."""
    filters: list[Filter] = []
    if "type" in given:
        name = given["type"]
        if not isinstance(name, str):
            raise InvalidParameter(f"analyzer type should be string, but got {name!r}")
        if name not in _BUILT_IN:
            raise InvalidParameter(
                f"unknown build-in analyzer type: {name}: use one of {', '.join(_BUILT_IN)}"
            )
        tokenizer, known = _BUILT_IN[name], {"type", "stop_words", "filter"}
        if name == "english":
            filters = [filter_from("lowercase"), stemmer("english"), stop_words(["_english_"])]
        else:
            filters = [filter_from("lowercase" if name == "standard" else "cnalphanumonly")]
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
    return Analyzer(tokenizer_from(tokenizer), filters)


_BUILT_IN: Mapping[str, object] = {"standard": "standard", "english": "standard", "chinese": "jieba"}
"""The tokenizer of each built-in analyzer."""
