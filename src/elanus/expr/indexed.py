"""Decides when scalar indexes answer a condition, and evaluates it with them.

An index that finds few rows saves reading the column; one that finds many is slower than a scan, because the
rows are scattered. So an index is asked for an estimate first, and is used up to its share of the rows
(`RowIndex.rows_share_max`; 5 % for sorted values, any share for bitmaps). Sorted values also answer a filter
that is one condition and leaves up to an eighth of the rows, or leaves out as many. In a conjunction the most
selective index is used first, and the other conditions are evaluated on its rows only: by the bits of an
index that has bits for them, or by the columns. Conditions that bound one value, as ``a > 1 and a < 5`` do,
are one lookup. A disjunction uses indexes if each of its conditions has one, and all of them together find
few rows. A condition that none of this helps is scanned.

The answers are those of the scan, row by row. A lookup that finds more rows than the condition has
(`is_exact`) is followed by the condition itself on the rows found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.lookup import Found, HoldsSuch, OneOf, PackedRows, RowNumbers
from elanus.core.row_sets import bits_of, narrowed, numbers_of
from elanus.expr import kernels
from elanus.expr.batch import Batch, RowIndex
from elanus.expr.cost import cost_of
from elanus.expr.explain import Explainer
from elanus.expr.lookups import LeafLookup, inside_of, lookup_of, windows
from elanus.expr.tree import And, Or, Predicate

SPARSE_SHARE_MAX = 0.05
"""Up to this share of the rows, the other conditions are evaluated on the rows found."""
ELEMENTS_FACTOR = 0.6
"""By which that share is lower for ranges of elements: rows are found that the condition is evaluated on."""
SCAN_COST_MIN = 600_000
"""A scan that costs less (`elanus.expr.cost`, for all rows) is not worth asking an index: about 200 µs."""
UNITED_MAX = 8
"""So many bitmaps at most are united to narrow what another index found."""

Evaluate = Callable[[Predicate, Batch], pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """A way to find a condition's rows with indexes.

    ``rows_max``: how many are found at most; ``rest``: the condition that decides about those found, None:
    all match. ``leaves``: those that find the rows. ``also``: leaves whose bits the rows must be among, or
    must not.
    """

    rows_max: int
    fetch: Callable[[], Found]
    rest: Predicate | None
    leaves: tuple[_Leaf, ...]
    also: tuple[_Leaf, ...] = ()

    def found(self) -> Found:
        """The rows, of which ``rest`` holds for some."""
        found = self.fetch()
        for leaf in self.also:
            bits = leaf.find()
            assert isinstance(bits, PackedRows)
            found = narrowed(found, bits, without=leaf.asked.negated)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    """A leaf with its index, and how many rows that finds; None: it does not answer."""

    asked: LeafLookup
    index: RowIndex
    estimate: int | None

    @property
    def title(self) -> str:
        path = "".join(f"[{step!r}]" for step in self.asked.path)
        return f"{self.asked.name}{path} ({self.index.title})"

    def find(self) -> Found:
        found = self.index.find(self.asked.lookup)
        assert found is not None, "an index that gives an estimate has an answer"
        return found


def indexed_rows(node: Predicate, batch: Batch, evaluate: Evaluate) -> Found | None:
    """The rows that the condition is true of, found by indexes; None if a scan is quicker.

    ``evaluate``: evaluates what is left of the condition on the rows found.
    """
    if not batch.has_indexes or id(node) in batch.scanned:
        return None
    access = _access(node, batch, alone=True)
    if access is None:
        batch.scanned.add(id(node))
        return None
    found = access.found()
    if access.rest is None:
        return found
    rows = numbers_of(found)
    if len(rows):
        rows = rows[kernels.as_mask(evaluate(access.rest, batch.select(pa.array(rows))))]
    return RowNumbers(rows)


def indexed_rows_max(node: Predicate, batch: Batch) -> int | None:
    """How many rows `indexed_rows` would find at most; None if a scan is quicker."""
    access = _access(node, batch) if batch.has_indexes else None
    return None if access is None else access.rows_max


def indexed_leaf(node: Predicate, batch: Batch) -> pa.Array | None:
    """The answer to a leaf for all rows, from bits or as the complement of few rows; None: scan."""
    leaf = None if id(node) in batch.unanswered else _known(node, batch)
    if leaf is None or not leaf.asked.is_exact or leaf.estimate is None:
        return None
    if leaf.estimate > leaf.index.rows_share_max * batch.rows:
        return None
    answer = kernels.from_bits(bits_of(leaf.find(), batch.rows), batch.rows)
    if not leaf.asked.negated:
        return answer
    column = batch.column(leaf.asked.name)
    others = pc.invert(answer)
    return pc.and_(others, kernels.one_array(pc.is_valid(column))) if column.null_count else others


def explain_indexed(node: Predicate, batch: Batch) -> str:
    """Say which indexes answer a condition, or why none does."""
    if not batch.has_indexes:
        return "scan: no index"
    access = _access(node, batch, alone=True)
    if access is not None:
        rest = "" if access.rest is None else f", then {Explainer().visit(access.rest)} on these"
        names = " and ".join(dict.fromkeys(leaf.title for leaf in (*access.leaves, *access.also)))
        return f"index {names}: at most {access.rows_max:,} of {batch.rows:,} rows{rest}"
    return "; ".join(_explain_leaf(leaf, batch) for leaf in _leaves(node))


def _explain_leaf(node: Predicate, batch: Batch) -> str:
    text = Explainer().visit(node)
    asked = lookup_of(node)
    if asked is None:
        return f"scan {text}: no index answers it"
    if _is_scan_cheap(node, asked, batch):
        return f"scan {text}: as quick as asking an index"
    leaf = _known(node, batch)
    if leaf is None:
        return f"scan {text}: no index on {asked.name}"
    if leaf.estimate is None:
        return f"scan {text}: index {leaf.title} does not answer it"
    share = leaf.estimate / max(1, batch.rows)
    is_quick = share <= leaf.index.rows_share_max or (not asked.negated and _is_quick(leaf))
    if not is_quick or not leaf.asked.is_exact:
        return f"scan {text}: index {leaf.title} finds {share:.1%} of the rows"
    return f"index {leaf.title} for {text}"


def _leaves(node: Predicate) -> list[Predicate]:
    if isinstance(node, And | Or):
        return [leaf for child in node.children for leaf in _leaves(child)]
    return [node]


def _access(node: Predicate, batch: Batch, *, alone: bool = False) -> _Access | None:
    """``alone``: nothing else is evaluated on the rows found."""
    match node:
        case And():
            return _conjunction(node, batch, alone=alone)
        case Or():
            return _disjunction(node, batch)
    return _leaf(node, batch, alone=alone)


def _conjunction(node: And, batch: Batch, *, alone: bool) -> _Access | None:
    found: list[tuple[tuple[Predicate, ...], _Access]] = []
    bounding: set[int] = set()
    for conditions, asked in windows(node.children):
        together = And(conditions)
        leaf = _indexed(together, asked, batch)
        if leaf is None or leaf.estimate is None:
            continue
        bounding.update(map(id, conditions))  # none of them alone finds fewer rows
        is_all = len(conditions) == len(node.children)
        access = _few(leaf, together, batch, alone=alone and is_all)
        if access is not None:
            found.append((conditions, access))
            continue
        batch.scanned.update(map(id, conditions))
        if leaf.estimate > leaf.index.rows_share_max * batch.rows:
            batch.unanswered.update(map(id, conditions))
    for child in node.children:
        access = None if id(child) in bounding else _access(child, batch)
        if access is not None:
            found.append(((child,), access))
    if not found:
        return None
    chosen, best = min(found, key=lambda one: one[1].rows_max)
    used = set(map(id, chosen))
    others = [(child, _narrowing(child, batch)) for child in node.children if id(child) not in used]
    also = tuple(leaf for _, leaf in others if leaf is not None)
    rest = [child for child, leaf in others if leaf is None]
    if best.rest is not None:
        rest.insert(0, best.rest)
    return _Access(
        best.rows_max,
        best.found,
        rest[0] if len(rest) == 1 else And(tuple(rest)) if rest else None,
        best.leaves + best.also,
        also,
    )


def _narrowing(node: Predicate, batch: Batch) -> _Leaf | None:
    """The leaf if an index has bits for it, which decide about a row without its column; otherwise None."""
    if isinstance(node, And | Or):
        return None
    leaf = _known(node, batch)
    if leaf is None or leaf.estimate is None or not leaf.asked.is_exact or not leaf.index.has_bits:
        return None
    asked = leaf.asked
    if not isinstance(asked.lookup, OneOf) or len(asked.lookup.values) > UNITED_MAX:
        return None
    return None if asked.negated and batch.column(asked.name).null_count else leaf


def _disjunction(node: Or, batch: Batch) -> _Access | None:
    parts = []
    for child in node.children:
        access = _access(child, batch)
        if access is None:
            return None
        parts.append(access)
    rows_max = sum(part.rows_max for part in parts)
    if rows_max > SPARSE_SHARE_MAX * batch.rows:
        return None
    is_exact = all(part.rest is None for part in parts)
    leaves = tuple(leaf for part in parts for leaf in part.leaves + part.also)
    return _Access(
        rows_max,
        lambda: _union([part.found() for part in parts], batch.rows),
        None if is_exact else node,
        leaves,
    )


def _leaf(node: Predicate, batch: Batch, *, alone: bool) -> _Access | None:
    leaf = _known(node, batch)
    if leaf is None or leaf.asked.negated:
        return None
    return _few(leaf, node, batch, alone=alone)


def _few(leaf: _Leaf, node: Predicate, batch: Batch, *, alone: bool) -> _Access | None:
    """The way to the rows of a condition, if its index finds few, or finds any number quickly."""
    share_max = SPARSE_SHARE_MAX
    if isinstance(leaf.asked.lookup, HoldsSuch):
        share_max *= ELEMENTS_FACTOR
    if leaf.estimate is None:
        return None
    if leaf.estimate > share_max * batch.rows and not (alone and _is_quick(leaf)):
        return None
    return _Access(leaf.estimate, leaf.find, None if leaf.asked.is_exact else node, (leaf,))


def _is_quick(leaf: _Leaf) -> bool:
    """Whether the index finds the rows of a condition quickly, where nothing else is evaluated on them."""
    return leaf.estimate is not None and leaf.asked.is_exact and leaf.index.finds_quickly(leaf.estimate)


def _known(node: Predicate, batch: Batch) -> _Leaf | None:
    """The leaf with its index; None if there is none. Found out once per leaf and batch."""
    if id(node) not in batch.answers:
        batch.answers[id(node)] = _examined(node, batch)
    leaf = batch.answers[id(node)]
    assert leaf is None or isinstance(leaf, _Leaf)
    return leaf


def _examined(node: Predicate, batch: Batch) -> _Leaf | None:
    asked = lookup_of(node) if batch.has_indexes else None
    return None if asked is None else _indexed(node, asked, batch)


def _indexed(node: Predicate, asked: LeafLookup, batch: Batch) -> _Leaf | None:
    if _is_scan_cheap(node, asked, batch):
        return None
    index = batch.index(asked.name, asked.path)
    leaf = None if index is None else _Leaf(asked, index, index.estimate(asked.lookup))
    if leaf is not None and leaf.estimate is not None:
        return leaf
    return _of_documents(asked, batch) or leaf


def _is_scan_cheap(node: Predicate, asked: LeafLookup, batch: Batch) -> bool:
    """Whether a scan takes no longer than asking an index.

    A path that nobody has decoded yet costs more than one that is kept.
    """
    if batch.rows >= SCAN_COST_MIN:  # a row costs at least 1
        return False
    is_kept = not asked.is_json or batch.is_json_read(asked.name, asked.path)
    return batch.rows * cost_of(node, batch.prepared if is_kept else frozenset()) < SCAN_COST_MIN


def _of_documents(asked: LeafLookup, batch: Batch) -> _Leaf | None:
    """The leaf with an index of whole documents, at its path or above."""
    for length in range(len(asked.path), -1, -1):
        index = batch.index(asked.name, asked.path[:length])
        inside = None if index is None else inside_of(asked, asked.path[length:])
        if index is not None and inside is not None:
            estimate = index.estimate(inside)
            if estimate is not None:
                found = LeafLookup(asked.name, asked.path[:length], inside, is_exact=False)
                return _Leaf(found, index, estimate)
    return None


def _union(parts: list[Found], rows: int) -> Found:
    if any(isinstance(part, PackedRows) for part in parts):
        return PackedRows(np.bitwise_or.reduce([bits_of(part, rows) for part in parts]))
    return RowNumbers(np.unique(np.concatenate([numbers_of(part) for part in parts])))
