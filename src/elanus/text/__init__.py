"""Text analysis: from a text to the tokens that full-text search and text filters compare.

An analyzer cuts a text into tokens (`elanus.text.tokenizers`) and passes them through filters
(`elanus.text.filters`); a field's type parameters name them (`elanus.text.fields`). Stemming, folding and
stop words are tantivy's, which the reference uses too. The library is imported when the first analyzer that
needs it is made: a server without text fields never loads it.
"""

from elanus.text.analyzer import Analyzer, Token, Tokens, analyzer_from
from elanus.text.computed import (
    computed_column,
    computed_signatures,
    computed_terms,
    inputs_of,
    with_computed_columns,
)
from elanus.text.fields import FieldAnalyzers, analyzers_of, check_text_field
from elanus.text.fuzzy import near_rows, near_words
from elanus.text.highlight import Highlight, check_highlighted, highlights
from elanus.text.match import kept_bytes, least_slop, matching_rows, phrase_rows, tokens_of_column
from elanus.text.queries import QueryTexts, query_texts
from elanus.text.signatures import SignatureRows, signatures_of
from elanus.text.terms import TermRows, query_terms, term_ids, term_rows

__all__ = [
    "Analyzer",
    "FieldAnalyzers",
    "Highlight",
    "QueryTexts",
    "SignatureRows",
    "TermRows",
    "Token",
    "Tokens",
    "analyzer_from",
    "analyzers_of",
    "check_highlighted",
    "check_text_field",
    "computed_column",
    "computed_signatures",
    "computed_terms",
    "highlights",
    "inputs_of",
    "kept_bytes",
    "least_slop",
    "matching_rows",
    "near_rows",
    "near_words",
    "phrase_rows",
    "query_terms",
    "query_texts",
    "signatures_of",
    "term_ids",
    "term_rows",
    "tokens_of_column",
    "with_computed_columns",
]
