"""The filter language: text → syntax tree → bound tree → mask, pruning, primary keys, explanation.

`compile_filter` is the entry point; it returns a `BoundFilter`. The grammar follows the reference's (Plan.g4)
for everything that the supported field types can express.
"""

from elanus.expr.batch import ColumnData, Indexes
from elanus.expr.filter import BoundFilter, compile_filter, load_parser
from elanus.expr.geometry_column import GeometryColumn
from elanus.expr.jsonpath import JsonColumn
from elanus.expr.jsontyped import typed_column
from elanus.expr.key_range import KeyBound

__all__ = [
    "BoundFilter",
    "ColumnData",
    "GeometryColumn",
    "Indexes",
    "JsonColumn",
    "KeyBound",
    "compile_filter",
    "load_parser",
    "typed_column",
]
