"""Binding: a syntax tree and a schema become the bound tree, or an error that explains the problem.

The type rules are the reference's, with one extension: arithmetic may nest (``(a + 1) * 2 > 5``).
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.core.schema import CollectionSchema
from elanus.core.types import DataType, Family, type_name
from elanus.expr import geometry, syntax
from elanus.expr.array_conditions import bind_array_contains, no_direct_comparison
from elanus.expr.comparisons import bind_comparison, bind_membership, check_chain_bound, holds
from elanus.expr.elements import ELEMENT_FUNCTIONS, ElementBinder, bind_element_match
from elanus.expr.jsonvalues import JsonSet
from elanus.expr.like import like_pattern
from elanus.expr.logic import all_of, any_of, has_element_filter, has_sample, negation
from elanus.expr.membership import MEMBERSHIP, bind_membership_match
from elanus.expr.operands import FUNCTIONS, SAMPLE, BoundOperand, OperandBinder, Value
from elanus.expr.regex import regex_pattern
from elanus.expr.sampling import new_seed
from elanus.expr.source import Source, shorten
from elanus.expr.text_conditions import TEXT_FUNCTIONS, bind_text_condition
from elanus.expr.tree import (
    Always,
    Column,
    Comparator,
    IsNull,
    JsonContains,
    Like,
    Predicate,
    Regex,
    Sample,
)


def bind(
    source: Source, tree: syntax.Node, schema: CollectionSchema, values: Mapping[str, object]
) -> Predicate:
    """Return a filter's bound tree. ``values`` are those of its templates. Raises `InvalidFilter`."""
    bound = _Binder(source, schema, OperandBinder(source, schema, values), values).bind(tree)
    if isinstance(bound, Predicate):
        return bound
    raise source.not_boolean(type_name(bound.data_type), tree.start, _condition_from(bound))


def _condition_from(bound: BoundOperand) -> str:
    if isinstance(bound, Value) and isinstance(bound.value, bool):
        return "leave it out, or write '1 == 1' or '1 == 0'"
    if isinstance(bound, Column) and bound.kind.family is Family.BOOL:
        index = "".join(f"[{step}]" for step in bound.path)
        return f"write '{bound.field.name}{index} == true'"
    return "compare it with something"


class _Binder:
    def __init__(
        self,
        source: Source,
        schema: CollectionSchema,
        operands: OperandBinder,
        values: Mapping[str, object],
    ) -> None:
        self._source = source
        self._schema = schema
        self._operands = operands
        self._values = values
        self._of_elements = isinstance(operands, ElementBinder)

    def bind(self, node: syntax.Node) -> Predicate | BoundOperand:
        """Bind a node: to a condition if it is one, else to its value."""
        match node:
            case syntax.Negation():
                return self._negation(node)
            case syntax.Logical():
                return self._logical(node)
            case syntax.Comparison():
                return self._comparison(node)
            case syntax.Chain():
                return self._chain(node)
            case syntax.Member():
                return self._member(node)
            case syntax.Like():
                return self._like(node)
            case syntax.Regex():
                return self._regex(node)
            case syntax.Null():
                return self._null(node)
            case syntax.Exists():
                return self._exists(node)
            case syntax.Call() if self._of_elements:
                what = f"function {node.function} cannot be used in a condition on elements"
                raise self._source.error(what, node.start, "compare $[name] with a value")
            case syntax.Call() if node.function.lower() in ELEMENT_FUNCTIONS:
                return bind_element_match(
                    self._source, node, self._schema, self._values, self._condition_on_elements
                )
            case syntax.Call() if node.function.lower() in geometry.FUNCTIONS:
                return geometry.bind_geometry(self._source, self._operands, node)
            case syntax.Call() if node.function.lower() in FUNCTIONS:
                return self._call(node)
            case syntax.Call() if node.function.lower() == SAMPLE:
                return self._sample(node)
            case syntax.Call() if node.function.lower() in TEXT_FUNCTIONS:
                return bind_text_condition(self._source, node, self._operands)
            case syntax.Call() if node.function.lower() == MEMBERSHIP:
                return bind_membership_match(self._source, node, self._operands, self._values)
            case _:
                return self._operands.bind(node)

    def _condition_on_elements(self, node: syntax.Node, operands: OperandBinder) -> Predicate:
        bound = _Binder(self._source, self._schema, operands, self._values).bind(node)
        if isinstance(bound, Predicate):
            return bound
        raise self._source.not_boolean(type_name(bound.data_type), node.start, _condition_from(bound))

    def _negation(self, node: syntax.Negation) -> Predicate:
        bound = self.bind(node.operand)
        if isinstance(bound, Value) and isinstance(bound.value, bool):
            return Always(not bound.value)
        if not isinstance(bound, Predicate):
            what = "not op can only be applied on boolean expression"
            raise self._source.error(what, node.operand.start, _condition_from(bound))
        if has_sample(bound):
            what = "random sample expression cannot be used in unary expression"
            raise self._source.error(what, node.start, "a sample is the last condition of an 'and'")
        if has_element_filter(bound):
            what = "element filter expression cannot be used in unary expression"
            raise self._source.error(what, node.start, "write 'not match_any(..)'")
        return negation(bound)

    def _logical(self, node: syntax.Logical) -> Predicate:
        bound = [(operand, self.bind(operand)) for operand in node.operands]
        if all(isinstance(child, Value) and isinstance(child.value, bool) for _, child in bound):
            bound = [(operand, Always(child.value)) for operand, child in bound if isinstance(child, Value)]
        children = []
        for operand, child in bound:
            if not isinstance(child, Predicate):
                what = f"'{node.operator}' can only be used between boolean expressions"
                raise self._source.error(what, operand.start, _condition_from(child))
            children.append(child)
        self._check_samples(node, children)
        self._check_element_filters(node, children)
        return all_of(children) if node.operator == "and" else any_of(children)

    def _check_samples(self, node: syntax.Logical, children: list[Predicate]) -> None:
        remedy = "write '.. and random_sample(0.1)': the other conditions first"
        if node.operator == "or" and any(map(has_sample, children)):
            what = "random sample expression cannot be used in logical or expression"
            raise self._source.error(what, node.start, remedy)
        if any(map(has_sample, children[:-1])):
            what = "random sample expression can only be the last expression in the logical and expression"
            raise self._source.error(what, node.start, remedy)

    def _check_element_filters(self, node: syntax.Logical, children: list[Predicate]) -> None:
        if node.operator == "or" and any(map(has_element_filter, children)):
            what = "element filter expression cannot be used in logical or expression"
            raise self._source.error(what, node.start, "write match_any(..) in place of element_filter(..)")
        if any(map(has_element_filter, children[:-1])):
            what = "element filter expression can only be the last expression in the logical and expression"
            raise self._source.error(what, node.start, "write '.. and element_filter(..)', and only one")

    def _comparison(self, node: syntax.Comparison) -> Predicate:
        left, right = self._operands.bind(node.left), self._operands.bind(node.right)
        self._refuse_long_text(node.left, left, f"operator {node.operator}")
        self._refuse_long_text(node.right, right, f"operator {node.operator}")
        return bind_comparison(self._source, node, Comparator(node.operator), left, right)

    def _refuse_long_text(self, node: syntax.Node, bound: BoundOperand, what: str) -> None:
        """Refuse every condition on a Text field but those on its words, as the reference does."""
        if isinstance(bound, Column) and bound.data_type is DataType.TEXT:
            what = f"{what} is not supported on the TEXT field {bound.field.name}"
            remedy = "write text_match(field, 'words'), or keep the value in a VarChar field"
            raise self._source.error(what, node.start, remedy)

    def _chain(self, node: syntax.Chain) -> Predicate:
        """``low < a <= high`` is ``low < a and a <= high``: constant bounds, operators in one direction."""
        one, two = map(Comparator, node.operators)
        if two not in _SAME_DIRECTION.get(one, ()):
            what = f"invalid range operations: {self._source.of(node)}"
            raise self._source.error(what, node.start, "a chain goes one way: 1 < a <= 5, or 5 >= a > 1")
        roles = ("lower", "", "upper") if one in _RISING else ("upper", "", "lower")
        first, middle, last = map(self._operands.bind, node.operands, roles)
        if not isinstance(middle, Column):
            text = self._source.of(node.operands[1])
            what = f"range operations are only supported on single fields now, got: {text}"
            raise self._source.error(what, node.operands[1].start, "join two comparisons with 'and'")
        self._refuse_long_text(node.operands[1], middle, f"operator {one}")
        lower, upper = (first, last) if one in _RISING else (last, first)
        for bound, side in ((lower, "lower"), (upper, "upper")):
            if not isinstance(bound, Value):
                what = f"{side}bound cannot be a non-const expression: {self._source.of(node)}"
                raise self._source.error(what, node.start, "join comparisons of two fields with 'and'")
            check_chain_bound(self._source, node, middle, bound)
        both = (
            bind_comparison(self._source, node, one, first, middle),
            bind_comparison(self._source, node, two, middle, last),
        )
        strict = Comparator.LT in (one, two) or Comparator.GT in (one, two)
        if not holds(Comparator.LT if strict else Comparator.LE, lower, upper):
            what = "invalid range: lowerbound is greater than upperbound"
            raise self._source.error(what, node.start, "no value is in it; exchange the bounds")
        return all_of(both)

    def _member(self, node: syntax.Member) -> Predicate:
        item = self._operands.bind(node.item)
        text = self._source.of(node.item)
        if isinstance(item, Value):
            what = f"'term' can only be used on non-const expression, but got: {text}"
            raise self._source.error(what, node.item.start, "a field stands before 'in'")
        if not isinstance(item, Column):
            what = f"'term' can only be used on single field, but got: {text}"
            raise self._source.error(what, node.item.start, "a field without arithmetic stands before 'in'")
        self._refuse_long_text(node.item, item, "operator in")
        if isinstance(node.values, syntax.LongList):
            return bind_membership(self._source, node, item, Value(node.values.values))
        values = self._operands.bind(node.values)
        if not isinstance(values, Value):
            what = f"value '{self._source.of(node.values)}' in list cannot be a non-const expression"
            raise self._source.error(what, node.values.start, "write a list of literals: [1, 2, 3]")
        if not isinstance(values.value, list) and values.template:
            what = f"the value of term expression template variable {{{values.template}}} is not array"
            raise self._source.error(what, node.values.start, "give it a list")
        if not isinstance(values.value, list):
            what = f"the right-hand side of 'in' must be a list, but got: {self._source.of(node.values)}"
            raise self._source.error(what, node.values.start, "write a list of literals: [1, 2, 3]")
        return bind_membership(self._source, node, item, values)

    def _like(self, node: syntax.Like) -> Predicate:
        item = self._operands.bind(node.item)
        if not isinstance(item, Column):
            what = "like operation on complicated expr is unsupported"
            raise self._source.error(what, node.item.start, "a field stands before 'like'")
        self._refuse_long_text(node.item, item, "operator like")
        if item.is_array:
            raise no_direct_comparison(self._source, node.item, item)
        if item.kind.family not in (Family.TEXT, Family.JSON):
            what = "like operation on non-string or no-json field is unsupported"
            raise self._source.error(
                what, node.item.start, f"{item.field.name} is {type_name(item.data_type)}"
            )
        pattern = self._pattern(node.pattern, "like")
        if pattern is None:
            what = f"the pattern of like must be a string, but got: {self._source.of(node.pattern)}"
            raise self._source.error(what, node.pattern.start, 'write it in quotes: like "abc%"')
        return Like(item, like_pattern(pattern), negated=False)

    def _pattern(self, node: syntax.Node, verb: str) -> str | None:
        """The pattern written there; None if there is no string. Raises `InvalidFilter`."""
        pattern = self._operands.bind(node)
        if isinstance(pattern, Value) and isinstance(pattern.value, str):
            return pattern.value
        if isinstance(pattern, Value) and pattern.template:
            what = f"the value of {verb} expression template variable {{{pattern.template}}} is not string"
            raise self._source.error(what, node.start, "give it a string")
        return None

    def _regex(self, node: syntax.Regex) -> Predicate:
        item = self._operands.bind(node.item)
        if not isinstance(item, Column):
            what = "regex match on complicated expr is unsupported"
            raise self._source.error(what, node.item.start, "a field stands before '=~' and '!~'")
        self._refuse_long_text(node.item, item, f"operator {'!~' if node.negated else '=~'}")
        if item.is_array:
            raise no_direct_comparison(self._source, node.item, item)
        if item.kind.family not in (Family.TEXT, Family.JSON):
            what = "regex match on non-string or non-json field is unsupported"
            raise self._source.error(
                what, node.item.start, f"{item.field.name} is {type_name(item.data_type)}"
            )
        pattern = self._pattern(node.pattern, "regex")
        if pattern is None:
            text = self._source.of(node.pattern)
            what = f"regex pattern must be a string literal or template variable, got: {text}"
            raise self._source.error(what, node.pattern.start, 'write it in quotes: =~ "^a.*"')
        try:
            return Regex(item, regex_pattern(pattern), node.negated)
        except ValueError as problem:
            what = f"invalid regex pattern: {shorten(pattern)}: {shorten(str(problem))}"
            raise self._source.error(what, node.pattern.start, "the syntax is RE2's") from None

    def _sample(self, node: syntax.Call) -> Predicate:
        factor = self._operands.bind(node.arguments[0]) if len(node.arguments) == 1 else None
        text = self._source.of(node)
        if not isinstance(factor, Value) or type(factor.value) not in (int, float):
            what = f'"float factor" should be a const float expression: "float factor" passed: {text}'
            raise self._source.error(what, node.start, "write random_sample(0.1)")
        if type(factor.value) is not float or not 1e-7 < factor.value < 1 - 1e-7:
            what = f"sample factor should be in range (0, 1) exclusive, but got {factor.value}"
            raise self._source.error(what, node.arguments[0].start, "0.1 takes about a tenth of the rows")
        return Sample(Column(self._schema.primary_field), factor.value, new_seed())

    def _null(self, node: syntax.Null) -> Predicate:
        column = self._operands.whole(node.item)
        if not isinstance(column, Column):
            what = f"null tests are only supported on single fields, got: {self._source.of(node.item)}"
            raise self._source.error(what, node.item.start, "a field stands before 'is null'")
        self._refuse_long_text(node.item, column, "a null test")
        if column.field.is_searched and not column.field.nullable:
            what = f"unsupported data type: {column.field.vector.engine_name}"
            raise self._source.error(
                what, node.item.start, "a vector field that is not nullable is never null"
            )
        if self._of_elements:
            what = f"null tests are not supported on fields of elements, got: {self._source.of(node.item)}"
            raise self._source.error(what, node.item.start, "elements are never null")
        if column.is_element:
            name = column.field.name
            remedy = f"elements are never null: test {name}, or array_length({name})"
            what = "IsNull/IsNotNull operations are not supported on array element access"
            raise self._source.error(f"{what}, got: {self._source.of(node.item)}", node.item.start, remedy)
        return IsNull(column, node.negated)

    def _exists(self, node: syntax.Exists) -> Predicate:
        column = self._operands.bind(node.item)
        if not isinstance(column, Column):
            text = self._source.of(node.item)
            what = f"exists operations are only supported on single fields now, got: {text}"
            raise self._source.error(what, node.item.start, 'write exists meta["key"]')
        if not column.is_json:
            name = type_name(column.field.data_type)
            what = f"exists operations are only supportted on json field, got:{name}"
            raise self._source.error(what, node.item.start, "other fields are tested with 'is not null'")
        if not column.path:
            what = "exists operations are only supportted on json key"
            raise self._source.error(what, node.item.start, f'write exists {column.field.name}["key"]')
        return IsNull(column, negated=True)

    def _call(self, node: syntax.Call) -> Predicate:
        verb = FUNCTIONS[node.function.lower()]
        if len(node.arguments) != 2:
            what = f"{node.function} takes 2 arguments, but got {len(node.arguments)}"
            raise self._source.error(what, node.start, f'write {node.function}(meta["key"], ..)')
        column, sought = map(self._operands.bind, node.arguments)
        if not isinstance(column, Column) or not (column.is_json or column.is_array):
            text = self._source.of(node.arguments[0])
            what = f"{verb} operation are only supported on json or array fields now, got: {text}"
            raise self._source.error(
                what,
                node.arguments[0].start,
                "the first argument is an array field, a JSON field or a path into one",
            )
        if not isinstance(sought, Value):
            text = self._source.of(node.arguments[1])
            what = f"{verb} operation are only supported explicitly specified element, got: {text}"
            raise self._source.error(what, node.arguments[1].start, "the second argument is a literal")
        if verb != "contains" and not isinstance(sought.value, list):
            what = f"{verb} operation element must be an array"
            raise self._source.error(what, node.arguments[1].start, "write a list of literals: [1, 2, 3]")
        if column.is_array:
            return bind_array_contains(self._source, node, column, verb, sought)
        if verb == "contains":
            return JsonContains(column, JsonSet.of([sought.value]), need_all=False, negated=False)
        need_all = verb == "contains_all"
        if not sought.value:
            return Always(need_all)
        return JsonContains(column, JsonSet.of(sought.value), need_all, negated=False)


_RISING = (Comparator.LT, Comparator.LE)
_FALLING = (Comparator.GT, Comparator.GE)
_SAME_DIRECTION = {one: direction for direction in (_RISING, _FALLING) for one in direction}
