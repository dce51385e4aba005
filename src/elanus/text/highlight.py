"""Find the words of queries in the texts of hits, and return the fragments around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.functions import enables_analyzer
from elanus.core.highlights import Highlighting, Span, fragments, merged
from elanus.core.schema import CollectionSchema
from elanus.core.types import Family
from elanus.text.analyzer import Analyzer
from elanus.text.fields import FieldAnalyzers, analyzers_of


@dataclass(frozen=True, slots=True)
class Highlight:
    """The words to tag in the hits of a search, and how.

    ``searched``: the field of a full-text search, "" if its words are not tagged; ``texts``: those of the
    search, one a query; ``analyzer_name``: of the search.
    """

    how: Highlighting
    searched: str = ""
    texts: tuple[str, ...] = ()
    analyzer_name: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The highlighted fields, each once."""
        names = [self.searched] if self.searched else []
        return tuple(dict.fromkeys([*names, *(field for field, _ in self.how.queries)]))

    def columns(self, schema: CollectionSchema) -> tuple[str, ...]:
        """Return the columns that `highlights` needs: the texts, and the names of their analyzers."""
        by_fields = [analyzers_of(schema.field(name)).by_field for name in self.fields]
        return (*self.fields, *(name for name in by_fields if name))


def check_highlighted(schema: CollectionSchema, name: str) -> None:
    """Raises `InvalidParameter` unless the collection has such a field of analyzed texts."""
    field = schema.by_name.get(name)
    if field is None:
        raise InvalidParameter(f"highlight field not found in schema: {name}")
    if field.kind.family is not Family.TEXT or not enables_analyzer(field):
        raise InvalidParameter(f"highlight field {name} has no analyzed texts: it needs enable_analyzer")


def highlights(
    schema: CollectionSchema,
    asked: Highlight,
    offsets: npt.NDArray[np.int64],
    columns: Mapping[str, pa.Array],
) -> dict[str, list[list[str]]]:
    """Return the fragments of each hit, by field.

    ``offsets``: where the hits of each query begin, and their number; ``columns``: of the hits, at least
    those of `Highlight.columns`.
    """
    query_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)).tolist()
    found = {}
    for name in asked.fields:
        analyzers = analyzers_of(schema.field(name))
        words = _Words(analyzers, asked, name)
        texts = columns[name].to_pylist()
        names = columns[analyzers.by_field].to_pylist() if analyzers.by_field else [None] * len(texts)
        found[name] = [
            fragments(text, _matches(text, analyzer, words.of(query, analyzer)), asked.how) if text else []
            for text, query, analyzer in zip(
                texts, query_of, (analyzers.named(given or "") for given in names), strict=True
            )
        ]
    return found


class _Words:
    """The words to tag in a field, computed once for each query and analyzer."""

    def __init__(self, analyzers: FieldAnalyzers, asked: Highlight, name: str) -> None:
        self._of_search = analyzers.named(asked.analyzer_name)
        self._texts = asked.texts if name == asked.searched else ()
        self._queries = [text for field, text in asked.how.queries if field == name]
        self._known: dict[tuple[int, int], frozenset[str]] = {}

    def of(self, query: int, analyzer: Analyzer) -> frozenset[str]:
        key = (query if self._texts else 0, id(analyzer))
        if key not in self._known:
            words = [word for text in self._queries for word in analyzer.words(text)]
            if self._texts:
                words += self._of_search.words(self._texts[query])
            self._known[key] = frozenset(words)
        return self._known[key]


def _matches(text: str, analyzer: Analyzer, words: frozenset[str]) -> Sequence[Span]:
    """Return the matches in characters: tokens say where they are in bytes."""
    spans = merged((token.start, token.end) for token in analyzer.tokens(text) if token.text in words)
    if not spans or text.isascii():
        return spans
    begins = (np.frombuffer(text.encode(), np.uint8) & 0xC0) != 0x80
    places = np.concatenate(([0], np.cumsum(begins)))
    return [(int(places[start]), int(places[end])) for start, end in spans]
