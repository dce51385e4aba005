"""Conditions on the tokens of texts: ``text_match``, ``text_match_fuzzy`` and ``phrase_match``.

The text in the filter is analyzed like the field's texts. A column is analyzed once, by the first such
filter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.functions import enables_match
from elanus.core.types import Family
from elanus.expr import syntax
from elanus.expr.source import Source
from elanus.expr.tree import Column, Predicate, TextMatch
from elanus.text import Analyzer, analyzers_of, matching_rows, near_rows, phrase_rows, tokens_of_column

if TYPE_CHECKING:
    from elanus.expr.operands import OperandBinder

_FUZZY = "text_match_fuzzy"
TEXT_FUNCTIONS = frozenset({"text_match", _FUZZY, "phrase_match"})
MINIMUM = "minimum_should_match"
MINIMUM_MAX = 1000
SLOP_MAX = 2**32 - 1
EDITS = "max_edit_distance"
EDITS_MAX = 2
_SHORT_CHARS = 1000
Words = tuple[tuple[str, ...], tuple[int, ...]]


def bind_text_condition(source: Source, node: syntax.Call, operands: OperandBinder) -> Predicate:
    """Bind ``text_match(field, text, minimum_should_match=n)``, ``phrase_match(field, text, slop)`` or
    ``text_match_fuzzy(field, text, max_edit_distance=n)``.

    Raises `InvalidFilter`.
    """
    name = node.function.lower()
    is_phrase = name == "phrase_match"
    given = [one for one in node.arguments if not isinstance(one, syntax.Option)]
    option = next((one for one in node.arguments if isinstance(one, syntax.Option)), None)
    if not 2 <= len(given) <= (3 if is_phrase else 2):
        what = f"{name} takes a field and a text, but got {len(given)} arguments"
        raise source.error(what, node.start, f'write {name}(field, "words")')
    column, text = operands.bind(given[0]), operands.bind(given[1])
    what = name.replace("_", " ")
    if not isinstance(column, Column) or column.path or column.kind.family is not Family.TEXT:
        raise source.error(
            f"{what} operation on non-string is unsupported", given[0].start, "a VarChar field is the first"
        )
    field = column.field
    if not enables_match(field):
        raise source.error(
            f'field "{field.name}" does not enable match',
            given[0].start,
            "create the field with enable_analyzer and enable_match",
        )
    if isinstance(text, Column) or not isinstance(getattr(text, "value", None), str):
        what = f"{what} operation needs a text"
        if name == _FUZZY:
            what = f"{name} query should be a string literal or template variable"
        raise source.error(what, given[1].start, "the second is a text in quotes")
    if name == _FUZZY:
        edits = _edits(source, node, option, operands)
        return TextMatch(column, str(getattr(text, "value", "")), 1, None, negated=False, edits=edits)
    minimum, slop = 1, 0 if is_phrase else None
    if len(given) == 3:
        slop = _slop(source, given[2], operands)
    if option is not None:
        if is_phrase or option.name.lower() != MINIMUM:
            raise source.error(
                f"{name} has no option {option.name}", option.start, f"text_match has {MINIMUM}=n"
            )
        minimum = _minimum(source, option.value, operands)
    return TextMatch(column, str(getattr(text, "value", "")), minimum, slop, negated=False)


def _slop(source: Source, node: syntax.Node, operands: OperandBinder) -> int:
    value, text = _integer(node, operands), source.of(node)
    if value is None:
        what = '"slop" should be a const integer expression with "uint32" value. "slop" expression passed: '
        what += text
    elif value < 0:
        what = f'"slop" should not be a negative interger. "slop" passed: {text}'
    elif value > SLOP_MAX:
        what = f'"slop" exceeds the range of "uint32". "slop" expression passed: {text}'
    else:
        return value
    raise source.error(what, node.start, f"write a number from 0 to {SLOP_MAX}")


def _minimum(source: Source, node: syntax.Node, operands: OperandBinder) -> int:
    value = _integer(node, operands)
    if value is None:
        what = f"{MINIMUM} should be a const integer expression"
    elif value < 1:
        what = f"{MINIMUM} should be >= 1, got {value}"
    elif value > MINIMUM_MAX:
        what = f"{MINIMUM} should be <= {MINIMUM_MAX}, got {value}"
    else:
        return value
    raise source.error(what, node.start, "write a number")


def _edits(source: Source, node: syntax.Call, option: syntax.Option | None, operands: OperandBinder) -> int:
    usage = f'write {_FUZZY}(field, "words", {EDITS}=1)'
    if option is None:
        raise source.error("mismatched input ')' expecting ','", node.start, usage)
    if option.name.lower() != EDITS:
        raise source.error(f"expected {EDITS}, got {option.name}", option.start, usage)
    value, text = _integer(option.value, operands), source.of(option.value)
    if value is None:
        raise source.error(f"mismatched input '{text}' expecting IntegerConstant", option.start, usage)
    if not 0 <= value <= EDITS_MAX:
        raise source.error(f"{EDITS} should be in [0, {EDITS_MAX}], got {text}", option.start, usage)
    return value


def _integer(node: syntax.Node, operands: OperandBinder) -> int | None:
    value = getattr(operands.bind(node), "value", None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_matches(column: pa.Array | pa.ChunkedArray, node: TextMatch) -> pa.Array:
    """Which texts of a column match, null for null. It is not inverted for ``negated``. (rows,)."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    values = column.dictionary if pa.types.is_dictionary(column.type) else column
    analyzer = analyzers_of(node.column.field).named("")
    tokens = tokens_of_column(values, analyzer)
    words, offsets = _words(analyzer, node.text)
    if node.slop is not None:
        places = np.array(offsets, dtype=np.int64)
        found = phrase_rows(tokens, pa.array(words, pa.string()), places, node.slop)
    elif node.edits:
        found = near_rows(tokens, list(dict.fromkeys(words)), node.edits)
    else:
        found = matching_rows(tokens, pa.array(list(dict.fromkeys(words)), pa.string()), node.minimum)
    mask = pa.array(found, mask=pc.is_null(values).to_numpy(zero_copy_only=False))
    return mask.take(column.indices) if values is not column else mask


def _words(analyzer: Analyzer, text: str) -> Words:
    """Return the tokens of the text in a filter, and their positions. Each segment asks for them."""
    return (_short_words if len(text) <= _SHORT_CHARS else _long_words)(analyzer, text)


def _analyzed(analyzer: Analyzer, text: str) -> Words:
    tokens = analyzer.tokens(text)
    return tuple(token.text for token in tokens), tuple(token.position for token in tokens)


_short_words = lru_cache(1024)(_analyzed)
_long_words = lru_cache(8)(_analyzed)
"""Tokens take some twenty times the memory of their text, which may have millions of characters."""
