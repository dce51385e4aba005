"""The analyzers of a text field, from its type parameters.

``enable_analyzer`` has the field's texts analyzed, by ``analyzer_params`` or, if the language differs from
row to row, by ``multi_analyzer_params``: several analyzers by name, and the field whose value names a row's.
``enable_match`` allows ``text_match`` and ``phrase_match`` on the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from elanus.core.errors import InvalidParameter
from elanus.core.functions import ANALYZER_PARAMS, MULTI_ANALYZER_PARAMS, enables_analyzer, enables_match
from elanus.core.schema import DataType, FieldSchema
from elanus.text.analyzer import Analyzer, Tokens, analyzer_from, analyzer_of, decoded

DEFAULT = "default"
_FIELDS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class FieldAnalyzers:
    """``by_name``: all of a field's analyzers, the default among them. ``by_field``: the field whose values
    are names of analyzers; "" if the field has one analyzer. ``alias``: other names for them."""

    by_name: Mapping[str, Analyzer]
    by_field: str = ""
    alias: Mapping[str, str] | None = None

    def named(self, name: str) -> Analyzer:
        """Return the analyzer of that name or alias; the default one for any other name."""
        known = (self.alias or {}).get(name, name)
        return self.by_name.get(known) or self.by_name[DEFAULT]

    def tokens_of(self, texts: Sequence[str | None], names: Sequence[str | None] | None = None) -> Tokens:
        """Analyze rows. ``names``: the values of ``by_field``; None if the field has one analyzer."""
        if names is None or not self.by_field:
            return self.by_name[DEFAULT].tokens_of(texts)
        chosen: dict[int, tuple[Analyzer, list[int]]] = {}
        for row, name in enumerate(names):
            analyzer = self.named(name or "")
            chosen.setdefault(id(analyzer), (analyzer, []))[1].append(row)
        parts = []
        for analyzer, rows in chosen.values():
            part = analyzer.tokens_of([texts[row] for row in rows])
            parts.append((part, np.array(rows, dtype=np.int32)[part.rows]))
        return _joined(parts)


def _joined(parts: Sequence[tuple[Tokens, np.ndarray]]) -> Tokens:
    if not parts:
        empty = np.empty(0, dtype=np.int32)
        return Tokens(pa.array([], pa.string()), empty, empty, empty)
    words = pa.concat_arrays([part.vocabulary for part, _ in parts]).dictionary_encode()
    codes = words.indices.to_numpy().astype(np.int32)
    firsts = np.cumsum([0, *(len(part.vocabulary) for part, _ in parts)])
    of_part = [codes[first + part.codes] for (part, _), first in zip(parts, firsts[:-1], strict=True)]
    rows = np.concatenate([rows for _, rows in parts])
    order = np.argsort(rows, kind="stable")
    return Tokens(
        words.dictionary,
        np.concatenate(of_part)[order],
        rows[order],
        np.concatenate([part.positions for part, _ in parts])[order],
    )


def analyzers_of(field: FieldSchema) -> FieldAnalyzers:
    """Return the analyzers of a field that enables them. Raises `InvalidParameter` and `NotSupported`."""
    return _analyzers(field.params.get(ANALYZER_PARAMS, ""), field.params.get(MULTI_ANALYZER_PARAMS, ""))


@lru_cache(_FIELDS_KEPT)
def _analyzers(params: str, several: str) -> FieldAnalyzers:
    if not several:
        return FieldAnalyzers({DEFAULT: analyzer_from(params)})
    if params:
        raise InvalidParameter(f"send one of {ANALYZER_PARAMS} and {MULTI_ANALYZER_PARAMS}, not both")
    given = decoded(several, MULTI_ANALYZER_PARAMS)
    analyzers, by_field, alias = given.get("analyzers"), given.get("by_field"), given.get("alias", {})
    if not isinstance(analyzers, dict) or not all(isinstance(one, dict) for one in analyzers.values()):
        raise InvalidParameter(f"{MULTI_ANALYZER_PARAMS} needs analyzers, an object of analyzers by name")
    if DEFAULT not in analyzers:
        raise InvalidParameter("multi analyzer must have default analyzer for all kind of language")
    if not isinstance(by_field, str):
        raise InvalidParameter(
            "multi analyzer required by_field in params: the field that names a row's analyzer"
        )
    if not isinstance(alias, dict) or not all(name in analyzers for name in alias.values()):
        raise InvalidParameter(f"the alias of {MULTI_ANALYZER_PARAMS} should map names to names of analyzers")
    return FieldAnalyzers({name: analyzer_of(one) for name, one in analyzers.items()}, by_field, alias)


def check_text_field(field: FieldSchema, others: Mapping[str, FieldSchema]) -> None:
    """Check the parameters of a text field, and build its analyzers once.

    ``others``: the collection's fields by name. Raises `InvalidParameter` and `NotSupported`.
    """
    if enables_match(field) and not enables_analyzer(field):
        raise InvalidParameter(
            f"field {field.name} is set to enable match or bm25 function but not enable analyzer: "
            "set enable_analyzer"
        )
    if not enables_analyzer(field):
        return
    by_field = analyzers_of(field).by_field
    if not by_field:
        return
    if enables_match(field):
        raise InvalidParameter(
            f"multi analyzer now only support for bm25, but now field {field.name} enable match"
        )
    known = others.get(by_field)
    if known is None:
        raise InvalidParameter(f"multi analyzer dependent field {by_field} not exist in collection")
    if known.data_type is not DataType.VARCHAR:
        raise InvalidParameter(f"multi analyzer by_field {by_field} should be a VarChar field")
