"""The filter language: text → syntax tree → bound tree → mask, pruning, primary keys, explanation.

`compile_filter` is the way in, `BoundFilter` what comes out. The reference's grammar (Plan.g4) is followed
in everything that our field types can express; functions on arrays, text and geometry are refused.
"""

from elanus.expr.filter import BoundFilter, compile_filter
from elanus.expr.jsonpath import JsonColumn

__all__ = ["BoundFilter", "JsonColumn", "compile_filter"]
