"""Evaluates the bound tree to a mask over columns.

Leaves are Arrow kernels over whole columns. A conjunction runs its cheapest condition first; once few rows
are undecided, the more expensive conditions look at those rows only (a disjunction likewise). On a million
rows, ``price > 10 and color in ["a", "b"] and name like "a%"`` takes 8 ms with half the prices above 10 and 3
ms with one in a hundred; every kernel over all rows takes 15 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.row_sets import bits_of
from elanus.core.types import DataType, Family
from elanus.expr import arithmetic, arrayvalues, kernels
from elanus.expr.arithmetic import Numbers
from elanus.expr.batch import Batch
from elanus.expr.cost import cost_of
from elanus.expr.elements import rows_that_match
from elanus.expr.indexed import indexed_leaf, indexed_rows
from elanus.expr.jsonvalues import UNKNOWN
from elanus.expr.membership import in_documents
from elanus.expr.sampling import sampled
from elanus.expr.tree import (
    Always,
    And,
    Arithmetic,
    ArrayContains,
    ArrayEqual,
    Column,
    ColumnTest,
    Comparator,
    Compare,
    Constant,
    ElementMatch,
    IsNull,
    JsonContains,
    JsonMember,
    Length,
    Like,
    Member,
    Operand,
    Or,
    Predicate,
    Regex,
    Sample,
    TextMatch,
    Visitor,
)

SCATTER_COST, TAKE_COST = 6, 20
"""The overhead of evaluating only some rows, in the unit of `elanus.expr.cost`: per row of the batch, and per
row and condition taken out."""
_MAY_BE_NAN = (DataType.FLOAT, DataType.DOUBLE)
SELECT_ROWS_MIN = 4096
"""Batches smaller than this are always evaluated as a whole."""


class Evaluator(Visitor[pa.Array]):
    """Evaluates each node to the rows it is true of: Arrow booleans of shape (batch.rows,).

    Leaves may answer null, for unknown. Conjunctions and disjunctions treat it as false. This is safe because
    negations occur only at the leaves: whether a child is false or unknown makes no difference to which rows
    match. Between two conditions the batch says whether to go on.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def visit(self, node: Predicate) -> pa.Array:
        """Answer a condition with indexes where they help (`elanus.expr.indexed`), otherwise by a scan."""
        if self._batch.has_indexes:
            rows = indexed_rows(node, self._batch, evaluated)
            if rows is not None:
                return kernels.from_bits(bits_of(rows, self._batch.rows), self._batch.rows)
            if not isinstance(node, And | Or):
                answer = indexed_leaf(node, self._batch)
                if answer is not None:
                    return answer
        return super().visit(node)

    def always(self, node: Always) -> pa.Array:
        return pa.array(np.full(self._batch.rows, node.value))

    def conjunction(self, node: And) -> pa.Array:
        return self._combine(node.children, pc.and_, decided=False)

    def disjunction(self, node: Or) -> pa.Array:
        return self._combine(node.children, pc.or_, decided=True)

    def _combine(
        self, children: Sequence[Predicate], join: Callable[[Any, Any], pa.Array], decided: bool
    ) -> pa.Array:
        """Combine the children's answers. A row whose answer is ``decided`` keeps it, whatever follows."""
        answer = pc.fill_null(self.visit(children[0]), False)
        costs = [cost_of(child, self._batch.prepared) for child in children]
        cost_left = sum(costs)
        for number, child in enumerate(children[1:], start=1):
            self._batch.go_on("not all conditions of the filter were evaluated")
            cost_left -= costs[number - 1]
            undecided = pc.invert(answer) if decided else answer
            rows_left = undecided.true_count
            if rows_left == 0:
                return answer
            if self._is_worth_selecting(rows_left, cost_left, len(children) - number):
                indices = pc.indices_nonzero(undecided)
                rest = Evaluator(self._batch.select(indices))._combine(children[number:], join, decided)
                return _scatter(rest, indices, self._batch.rows, decided)
            answer = join(answer, pc.fill_null(self.visit(child), False))
        return answer

    def _is_worth_selecting(self, rows_left: int, cost_left: int, conditions_left: int) -> bool:
        rows = self._batch.rows
        saved = (rows - rows_left) * cost_left
        price = SCATTER_COST * rows + TAKE_COST * rows_left * conditions_left
        return rows >= SELECT_ROWS_MIN and saved > price

    def compare(self, node: Compare) -> pa.Array:
        left, right, comparator = node.left, node.right, node.comparator
        if isinstance(right, Constant):
            if isinstance(right.value, str | bool):
                return self._compare_to_word(left, comparator, right.value)
            return arithmetic.compare_to_constant(
                self._numbers(left), comparator, right.value, self._batch.rows
            )
        if isinstance(left, Column) and left.kind.family in (Family.TEXT, Family.BOOL):
            assert isinstance(right, Column)
            one, other = map(self._column, (left, right))
            return kernels.compare(one, comparator, other)
        if left is right and comparator is Comparator.NE and left.data_type in _MAY_BE_NAN:
            assert isinstance(left, Column)
            return kernels.is_nan(kernels.decoded(self._column(left)))
        return arithmetic.compare(self._numbers(left), comparator, self._numbers(right), self._batch.rows)

    def _compare_to_word(self, left: Operand, comparator: Comparator, value: str | bool) -> pa.Array:
        assert isinstance(left, Column)
        column = self._column(left) if not left.is_json else self._of_type(left, type(value))
        if column is None:
            return kernels.unknown(self._batch.rows)
        if isinstance(value, str):
            return kernels.compare_to_text(column, comparator, value)
        return kernels.compare(column, comparator, pa.scalar(value))

    def _column(self, column: Column) -> pa.Array | pa.ChunkedArray:
        """The values of a field, or of an element of an array field."""
        if not column.is_element:
            return self._batch.column(column.field.name)
        (index,) = column.path
        assert isinstance(index, int)
        return self._batch.element(column.field.name, index)

    def _of_type(self, column: Column, wanted: type) -> pa.Array | None:
        values = self._batch.json(column.field.name, column.path)
        return values.strings if wanted is str else values.booleans

    def _numbers(self, operand: Operand) -> Numbers:
        if isinstance(operand, Constant):
            assert isinstance(operand.value, int | float)
            return arithmetic.constant(operand.value)
        if isinstance(operand, Arithmetic):
            return arithmetic.calculate(
                operand.operator, self._numbers(operand.left), self._numbers(operand.right)
            )
        if isinstance(operand, Length):
            return Numbers(self._lengths(operand.column), None)
        if operand.is_json:
            values = self._batch.json(operand.field.name, operand.path)
            return Numbers(values.integers, values.floats)
        column = kernels.decoded(self._column(operand))
        is_whole = operand.kind.family in (Family.INTEGER, Family.TIME)
        return Numbers(column, None) if is_whole else Numbers(None, column)

    def _lengths(self, column: Column) -> pa.Array:
        if column.is_json:
            return self._batch.json(column.field.name, column.path).lengths
        return arrayvalues.lengths(self._batch.column(column.field.name))

    def member(self, node: Member) -> pa.Array:
        found = kernels.is_member(self._column(node.column), node.values)
        return pc.invert(found) if node.negated else found

    def json_member(self, node: JsonMember) -> pa.Array:
        found = self._batch.json(node.column.field.name, node.column.path).is_member(node.values)
        return pc.invert(found) if node.negated else found

    def json_contains(self, node: JsonContains) -> pa.Array:
        values = self._batch.json(node.column.field.name, node.column.path)
        found = values.contains(node.values, node.need_all, self._batch.go_on)
        return pc.invert(found) if node.negated else found

    def array_contains(self, node: ArrayContains) -> pa.Array:
        column = self._batch.column(node.column.field.name)
        if node.need_all and (node.has_impossible or not node.literals):
            return kernels.known(column, node.has_impossible is node.negated)
        contains = arrayvalues.contains_all if node.need_all else arrayvalues.contains_any
        found = contains(column, node.values)
        return pc.invert(found) if node.negated else found

    def array_equal(self, node: ArrayEqual) -> pa.Array:
        column = self._batch.column(node.column.field.name)
        if node.values is None:
            return kernels.known(column, node.negated)
        found = arrayvalues.equal(column, node.values)
        return pc.invert(found) if node.negated else found

    def like(self, node: Like) -> pa.Array:
        column = self._of_type(node.column, str) if node.column.is_json else self._column(node.column)
        if column is None:
            return kernels.unknown(self._batch.rows)
        found = kernels.on_values(column, node.pattern.matches)
        return pc.invert(found) if node.negated else found

    def regex(self, node: Regex) -> pa.Array:
        column = node.column
        texts = self._of_type(column, str) if column.is_json else self._column(column)
        if texts is None:
            found = pa.array(np.zeros(self._batch.rows, np.bool_))
        else:
            found = kernels.on_values(texts, node.pattern.matches)
        if column.is_json or column.path:
            has_value = self._batch.has_value(column.field.name)
            found = pc.if_else(has_value, pc.fill_null(found, False), UNKNOWN)
        return pc.invert(found) if node.negated else found

    def sample(self, node: Sample) -> pa.Array:
        keys = kernels.one_array(kernels.decoded(self._batch.column(node.column.field.name)))
        return pa.array(sampled(keys, node.factor, node.seed))

    def text_match(self, node: TextMatch) -> pa.Array:
        found = self._batch.text_match(node)
        return pc.invert(found) if node.negated else found

    def is_null(self, node: IsNull) -> pa.Array:
        name, path = node.column.field.name, node.column.path
        present = self._batch.json(name, path).present if path else self._batch.has_value(name)
        return present if node.negated else pc.invert(present)

    def column_test(self, node: ColumnTest) -> pa.Array:
        name = node.column.field.name
        if node.column.is_json:
            found = in_documents(node.test, self._batch.json(name, node.column.path))
        else:
            column = kernels.one_array(kernels.decoded(self._batch.column(name)))
            found = node.test.matches(column, self._batch.boxes(name))
        return pc.invert(found) if node.negated else found

    def element_match(self, node: ElementMatch) -> pa.Array:
        return rows_that_match(node, self._batch, evaluated)


def evaluated(predicate: Predicate, batch: Batch) -> pa.Array:
    """The rows of a batch that a condition is true of; null may stand for false."""
    return Evaluator(batch).visit(predicate)


def _scatter(answers: pa.Array, indices: pa.Array, rows: int, elsewhere: bool) -> pa.Array:
    """The answers for some rows spread over all ``rows``; every other row gets ``elsewhere``."""
    scattered = np.full(rows, elsewhere)
    scattered[indices.to_numpy()] = answers.to_numpy(zero_copy_only=False)
    return pa.array(scattered)
