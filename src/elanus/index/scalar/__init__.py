"""Indexes over scalar fields: which rows have a value, without reading the column.

================  ===========================================  =====================================
kind              fields                                       structure
================  ===========================================  =====================================
BITMAP            Bool, integers, VarChar, Array, JSON path    `bitmap`, or `postings` with more than
                                                               256 distinct values
STL_SORT          numbers, VarChar, Timestamptz                `postings`
INVERTED          all, JSON path                               `postings`
Trie              VarChar                                      `postings`
NGRAM             VarChar, JSON path                           `ngram`
RTREE             Geometry                                     `rectangles`
HYBRID,           all, JSON path                               as BITMAP up to a limit of distinct
AUTOINDEX                                                      values, else as INVERTED
================  ===========================================  =====================================

A Timestamptz field has STL_SORT only and a Geometry field RTREE only, as in the reference; AUTOINDEX is that.

All of them answer with exactly the rows of a lookup (`elanus.core.lookup`). `elanus.expr.indexed` decides
when one is used. A further structure is a module with a class, its `IndexKind` in `kinds`, and a lookup of
its own in `elanus.core.lookup`.

A JSON path's values are read by the job that builds the index and given as a typed column; rows whose value
has another type are not in the index. With the cast type JSON all values below the path are, as `documents`
describes.
"""

from __future__ import annotations

from elanus.core.json_keys import JsonPath
from elanus.index.scalar.resolve import check_field, json_path_of

__all__ = ["JsonPath", "check_field", "json_path_of"]
