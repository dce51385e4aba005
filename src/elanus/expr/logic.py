"""Builds conjunctions, disjunctions and negations of bound conditions in normal form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from elanus.core.types import Family
from elanus.expr.cost import cost_of
from elanus.expr.tree import (
    Always,
    And,
    ArrayContains,
    ArrayEqual,
    Column,
    ColumnTest,
    Comparator,
    Compare,
    ElementMatch,
    IsNull,
    JsonContains,
    JsonMember,
    Like,
    Member,
    Or,
    Predicate,
    Regex,
    Sample,
    TextMatch,
    Visitor,
)


def all_of(predicates: Iterable[Predicate]) -> Predicate:
    """The conjunction of the predicates: flat, without constants, the cheapest first."""
    return _join(And, predicates, neutral=True)


def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """The disjunction of the predicates: flat, without constants, the cheapest first."""
    return _join(Or, predicates, neutral=False)


def _join(kind: type[And] | type[Or], predicates: Iterable[Predicate], neutral: bool) -> Predicate:
    children = []
    for child in _flat(kind, predicates):
        if not isinstance(child, Always):
            children.append(child)
        elif child.value != neutral:
            return child
    if len(children) < 2:
        return children[0] if children else Always(neutral)
    return kind(tuple(sorted(children, key=cost_of)))


def _flat(kind: type[And] | type[Or], predicates: Iterable[Predicate]) -> Iterator[Predicate]:
    for predicate in predicates:
        if isinstance(predicate, kind):
            yield from predicate.children
        else:
            yield predicate


def negation(predicate: Predicate) -> Predicate:
    """True where the predicate is false, and the reverse; unknown where it is unknown."""
    return _NEGATION.visit(predicate)


def has_sample(predicate: Predicate) -> bool:
    """Whether a sample is one of the conditions that all have to hold."""
    conditions = predicate.children if isinstance(predicate, And) else (predicate,)
    return any(isinstance(condition, Sample) for condition in conditions)


def has_element_filter(predicate: Predicate) -> bool:
    """Whether an ``element_filter`` is one of the conditions that all have to hold."""
    conditions = predicate.children if isinstance(predicate, And) else (predicate,)
    return any(isinstance(condition, ElementMatch) and condition.chooses for condition in conditions)


class _Negation(Visitor[Predicate]):
    def always(self, node: Always) -> Predicate:
        return Always(not node.value)

    def conjunction(self, node: And) -> Predicate:
        return any_of(list(map(self.visit, node.children)))

    def disjunction(self, node: Or) -> Predicate:
        return all_of(list(map(self.visit, node.children)))

    def compare(self, node: Compare) -> Predicate:
        opposite = replace(node, comparator=node.comparator.opposite)
        if node.comparator in (Comparator.EQ, Comparator.NE):
            return opposite
        # NaN is neither less nor greater, nor equal to itself. Arithmetic gives null instead of it.
        is_nan = []
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(side, Column) and side.kind.family is Family.FLOATING:
                known = [IsNull(other, negated=True)] if isinstance(other, Column) else []
                is_nan.append(all_of([Compare(Comparator.NE, side, side), *known]))
        return any_of([opposite, *is_nan])

    def member(self, node: Member) -> Predicate:
        return replace(node, negated=not node.negated)

    def json_member(self, node: JsonMember) -> Predicate:
        return replace(node, negated=not node.negated)

    def json_contains(self, node: JsonContains) -> Predicate:
        return replace(node, negated=not node.negated)

    def array_contains(self, node: ArrayContains) -> Predicate:
        return replace(node, negated=not node.negated)

    def array_equal(self, node: ArrayEqual) -> Predicate:
        return replace(node, negated=not node.negated)

    def like(self, node: Like) -> Predicate:
        return replace(node, negated=not node.negated)

    def regex(self, node: Regex) -> Predicate:
        return replace(node, negated=not node.negated)

    def sample(self, node: Sample) -> Predicate:
        raise AssertionError("a sample is never negated")

    def text_match(self, node: TextMatch) -> Predicate:
        return replace(node, negated=not node.negated)

    def is_null(self, node: IsNull) -> Predicate:
        return replace(node, negated=not node.negated)

    def column_test(self, node: ColumnTest) -> Predicate:
        return replace(node, negated=not node.negated)

    def element_match(self, node: ElementMatch) -> Predicate:
        return replace(node, negated=not node.negated)


_NEGATION = _Negation()
