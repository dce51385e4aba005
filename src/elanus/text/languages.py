"""The tokenizer ``language_identifier``: each text is analyzed by the analyzer of its language.

The language is found by a library, one of the two that the reference uses: ``whatlang``
(``elanus[languages]``), which is fast and small, or ``lingua`` (``elanus[lingua]``), which is better for
short texts, but slow and large. A text of an unknown language, or of one without an analyzer, gets the
analyzer ``default``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from elanus.core.errors import InvalidParameter
from elanus.text.tokenizers import Span, Tokenizer, library, refuse_rest

NAME = "language_identifier"
DEFAULT = "default"
Detect = Callable[[str], str | None]
"""Returns the English name of a text's language, if it is known."""


class Place(Protocol):
    """A token with the bytes of the text that it is from."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Analysis(Protocol):
    """The part of `elanus.text.analyzer.Analyzer` that is needed here."""

    def words(self, text: str) -> list[str]: ...
    def tokens(self, text: str) -> Sequence[Place]: ...


class ByLanguage(Tokenizer):
    """The tokens are those that the analyzer of the text's language makes, filters included."""

    def __init__(self, detect: Detect, analyzers: Mapping[str, Analysis], mapping: Mapping[str, str]) -> None:
        """``mapping``: the name of an analyzer by the name of a language, where the two differ."""
        self._detect = detect
        self._analyzers = analyzers
        self._mapping = mapping

    def words(self, text: str) -> list[str]:
        return self._analyzer(text).words(text)

    def spans(self, text: str) -> list[Span]:
        content = text.encode()
        return [
            (token.text, len(content[: token.start].decode()), len(content[: token.end].decode()))
            for token in self._analyzer(text).tokens(text)
        ]

    def _analyzer(self, text: str) -> Analysis:
        language = self._detect(text) or DEFAULT
        return self._analyzers.get(self._mapping.get(language, language), self._analyzers[DEFAULT])


def by_language(
    params: Mapping[str, object], analyzer_of: Callable[[Mapping[str, object]], Analysis]
) -> ByLanguage:
    """Return the tokenizer of these parameters. ``analyzer_of``: makes the analyzers of the languages.

    Raises `InvalidParameter`, and `NotSupported` if the library of the identifier is not installed.
    """
    refuse_rest(NAME, params, frozenset({"analyzers", "identifier", "mapping"}))
    given = params.get("analyzers")
    if given is None:
        raise InvalidParameter("analyzers must be set: an object with an analyzer for each language")
    analyzers: dict[str, Analysis] = {}
    for name, own in _object("analyzers", given).items():
        if not isinstance(own, Mapping):
            raise InvalidParameter(f'sub analyzer "{name}" params must be dict, but got {own!r}')
        analyzers[name] = analyzer_of(own)
    if DEFAULT not in analyzers:
        raise InvalidParameter(f"{DEFAULT} sub analyzer for language identifier analyzer must be set")
    mapping = _object("mapping", params.get("mapping", {}))
    for language, target in mapping.items():
        if not isinstance(target, str):
            raise InvalidParameter(f"mapping of {language} must be an analyzer, but got {target!r}")
    detect = _detect(params.get("identifier", "whatlang"))
    return ByLanguage(detect, analyzers, {language: str(target) for language, target in mapping.items()})


def _object(name: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"{name} must be dict, but got {given!r}")
    return given


def _detect(given: object) -> Detect:
    params = given if isinstance(given, Mapping) else {"type": given}
    name, least = params.get("type"), params.get("confidence", 0.0)
    if not isinstance(least, int | float) or isinstance(least, bool):
        raise InvalidParameter(f"confidence must be float, but got {least!r}")
    if name == "whatlang":
        return _whatlang(library("whatlang", "whatlang"), float(least))
    if name == "lingua":
        return _lingua(library("lingua", "lingua"))
    raise InvalidParameter(f"unknown identifier name: {name}: use whatlang or lingua")


def _whatlang(module: Any, least: float) -> Detect:
    def detect(text: str) -> str | None:
        try:
            found = module.detect(text)
        except ValueError:  # the library's word for an unknown language
            return None
        return _NAMES.get(str(found.lang)) if found.confidence > least else None

    return detect


def _lingua(module: Any) -> Detect:
    detector = module.LanguageDetectorBuilder.from_all_languages().build()

    def detect(text: str) -> str | None:
        found = detector.detect_language_of(text)
        return None if found is None else str(found.name).capitalize()

    return detect


_NAMES: Mapping[str, str] = {
    "afr": "Afrikaans", "aka": "Akan", "amh": "Amharic", "ara": "Arabic", "aze": "Azerbaijani",
    "bel": "Belarusian", "ben": "Bengali", "bul": "Bulgarian", "cat": "Catalan", "ces": "Czech",
    "cmn": "Mandarin", "dan": "Danish", "deu": "German", "ell": "Greek", "eng": "English",
    "epo": "Esperanto", "est": "Estonian", "fin": "Finnish", "fra": "French", "guj": "Gujarati",
    "heb": "Hebrew", "hin": "Hindi", "hrv": "Croatian", "hun": "Hungarian", "hye": "Armenian",
    "ind": "Indonesian", "ita": "Italian", "jav": "Javanese", "jpn": "Japanese", "kan": "Kannada",
    "kat": "Georgian", "khm": "Khmer", "kor": "Korean", "lat": "Latin", "lav": "Latvian",
    "lit": "Lithuanian", "mal": "Malayalam", "mar": "Marathi", "mkd": "Macedonian", "mya": "Burmese",
    "nep": "Nepali", "nld": "Dutch", "nob": "Bokmal", "ori": "Oriya", "pan": "Punjabi", "pes": "Persian",
    "pol": "Polish", "por": "Portuguese", "ron": "Romanian", "rus": "Russian", "sin": "Sinhalese",
    "slk": "Slovak", "slv": "Slovene", "sna": "Shona", "spa": "Spanish", "srp": "Serbian", "swe": "Swedish",
    "tam": "Tamil", "tel": "Telugu", "tgl": "Tagalog", "tha": "Thai", "tuk": "Turkmen", "tur": "Turkish",
    "ukr": "Ukrainian", "urd": "Urdu", "uzb": "Uzbek", "vie": "Vietnamese", "yid": "Yiddish", "zul": "Zulu",
}  # fmt: skip
"""The names that whatlang has for the languages it knows, by their codes of ISO 639-3."""
