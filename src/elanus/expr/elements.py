"""Conditions on the elements of an array: ``match_any`` and its family, and ``element_filter``.

``match_least(clips, $[seconds] > 3 and $[title] like "a%", threshold=2)`` is true of a row if at least two
elements of its struct array ``clips`` satisfy the whole condition; ``$[seconds]`` is a field of one element.
The condition is a filter of its own, over the elements of all rows: it is bound to fields that are called
``$[seconds]``, and evaluated on one column of all elements of each array. Then the elements of each row are
counted.

In ``match_any(tags, $ == "a")`` the elements are plain values: ``$`` is one. ``element_filter`` is
``match_any`` of a struct array, and chooses the elements that a search of elements considers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidFilter
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import struct_and_name
from elanus.expr import kernels, syntax
from elanus.expr.batch import Batch
from elanus.expr.jsonvalues import UNKNOWN
from elanus.expr.operands import OperandBinder, Value
from elanus.expr.source import Source
from elanus.expr.tree import ELEMENT_FILTER, Column, ElementMatch, Predicate, element_name

_ANY, _ALL, _LEAST, _MOST, _EXACT = "match_any", "match_all", "match_least", "match_most", "match_exact"
_WITH_THRESHOLD = (_LEAST, _MOST, _EXACT)
ELEMENT_FUNCTIONS = (ELEMENT_FILTER, _ANY, _ALL, *_WITH_THRESHOLD)
"""The functions, in small letters: case does not matter."""
THRESHOLD = "threshold"

Flags = npt.NDArray[np.bool_]
Evaluate = Callable[[Predicate, Batch], pa.Array]
BindCondition = Callable[[syntax.Node, OperandBinder], Predicate]


class ElementBinder(OperandBinder):
    """Binds the values of a condition on elements: ``$[name]`` is a field, or ``$``, and there are no others.

    ``array``: the name of the struct array or array; ``fields``: those of its elements.
    """

    def __init__(
        self,
        source: Source,
        schema: CollectionSchema,
        values: Mapping[str, object],
        array: str,
        fields: Iterable[FieldSchema],
    ) -> None:
        super().__init__(source, schema, values)
        self._array = array
        self._arrays = {_own_name(field): field for field in fields}
        self.read: dict[str, Column] = {}

    def columns(self) -> tuple[Column, ...]:
        """Return the arrays that have been bound so far; at least one: its lists have all elements."""
        read = tuple(self.read[name] for name in self._arrays if name in self.read)
        return read or (Column(next(iter(self._arrays.values()))),)

    def _element_field(self, node: syntax.Element) -> Column:
        array = self._arrays.get(node.name)
        if array is None:
            raise self._unknown(node)
        if array.has_vector_lists:
            what = f"vector field {node.name} of {self._array} cannot be used in a condition on elements"
            raise self._source.error(what, node.start, "search it, and filter by scalar fields")
        self.read[node.name] = Column(array)
        return Column(replace(array.element, name=element_name(array)))

    def _unknown(self, node: syntax.Element) -> InvalidFilter:
        if "" in self._arrays:
            what = f"{self._array} is no struct array: its elements have no field {node.name}"
            return self._source.error(what, node.start, "an element is written $")
        if not node.name:
            what = f"an element of the struct array {self._array} is no single value"
            return self._source.error(what, node.start, f"write $[{next(iter(self._arrays))}]")
        what = f"field {node.name} not exist in struct array field {self._array}"
        return self._source.error(what, node.start, f"it has {', '.join(self._arrays)}")

    def _name(self, node: syntax.Name) -> Column:
        what = f"field {node.name} cannot be used inside a condition on elements of {self._array}"
        written = (
            "an element is written $" if "" in self._arrays else "a field of an element is written $[name]"
        )
        remedy = f"{written}; join other conditions with 'and' outside"
        raise self._source.error(what, node.start, remedy)


def _own_name(field: FieldSchema) -> str:
    """Return the name of a field of a struct array, "" for an array of plain values."""
    found = struct_and_name(field.name)
    return "" if found is None else found[1]


def bind_element_match(
    source: Source,
    node: syntax.Call,
    schema: CollectionSchema,
    values: Mapping[str, object],
    bind_condition: BindCondition,
) -> ElementMatch:
    """Bind a call of one of `ELEMENT_FUNCTIONS`. Raises `InvalidFilter`."""
    function = node.function.lower()
    arguments = list(node.arguments)
    option = arguments.pop() if arguments and isinstance(arguments[-1], syntax.Option) else None
    if option is None and function in _WITH_THRESHOLD and len(arguments) == 3:
        # the documentation of Milvus also writes the threshold without its name
        last = arguments.pop()
        option = syntax.Option(last.start, last.end, THRESHOLD, last)
    threshold = ", threshold=2" if function in _WITH_THRESHOLD else ""
    usage = f"write {function}(clips, $[seconds] > 3{threshold})"
    if len(arguments) != 2:
        what = f"{node.function} takes a struct array and a condition, but got {len(arguments)} arguments"
        raise source.error(what, node.start, usage)
    if (option is not None) != (function in _WITH_THRESHOLD):
        what = f"{node.function} {'needs a' if option is None else 'takes no'} threshold: {source.of(node)}"
        raise source.error(what, node.start, usage)
    array, fields = _looked_at(source, arguments[0], schema, function)
    operands = ElementBinder(source, schema, values, array, fields)
    condition = bind_condition(arguments[1], operands)
    count = None
    if isinstance(option, syntax.Option):
        count = _threshold(source, function, option, operands)
    least = {_ALL: None, _LEAST: count, _EXACT: count, _MOST: 0}.get(function, 1)
    most = count if function in (_MOST, _EXACT) else None
    return ElementMatch(array, operands.columns(), condition, least, most, function, negated=False)


def _looked_at(
    source: Source, node: syntax.Node, schema: CollectionSchema, function: str
) -> tuple[str, Sequence[FieldSchema]]:
    """Return the name of the struct array or array, and the fields of its elements."""
    structs = [struct.name for struct in schema.structs]
    if isinstance(node, syntax.Name) and not node.path:
        if node.name in structs:
            return node.name, schema.members(node.name)
        field = schema.by_name.get(node.name)
        if field is not None and field.data_type is DataType.ARRAY and function != ELEMENT_FILTER:
            return node.name, (field,)
    what = f"struct array field {source.of(node)} not exist"
    remedy = (
        f"the struct arrays are {', '.join(structs)}" if structs else "the collection has no struct array"
    )
    raise source.error(what, node.start, remedy)


def _threshold(source: Source, function: str, option: syntax.Option, operands: OperandBinder) -> int:
    low = 1 if function == _LEAST else 0
    if option.name.lower() != THRESHOLD:
        what = f"{function} has no option {option.name}"
        raise source.error(what, option.start, f"write {THRESHOLD}=2")
    bound = operands.bind(option.value)
    value = bound.value if isinstance(bound, Value) else None
    if type(value) is not int or value < low:
        what = f"{THRESHOLD} of {function} must be an integer of at least {low}: {source.of(option)}"
        raise source.error(what, option.start, f"write {THRESHOLD}={max(low, 1)}")
    return value


def rows_that_match(node: ElementMatch, batch: Batch, evaluate: Evaluate) -> pa.Array:
    """Which rows of a batch have as many elements as wanted; null where the array is null. (rows,)"""
    flags = chosen_elements(node, batch, evaluate)
    array = _array(batch, node.columns[0])
    lengths = _lengths(array)
    ends = np.cumsum(lengths)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(flags)))
    counts = before[ends] - before[ends - lengths]
    found = counts >= (lengths if node.least is None else node.least)
    if node.most is not None:
        found &= counts <= node.most
    outcome = pa.array(found != node.negated)
    return pc.if_else(array.is_valid(), outcome, UNKNOWN) if array.null_count else outcome


def chosen_elements(node: ElementMatch, batch: Batch, evaluate: Evaluate) -> Flags:
    """Which elements of all rows, one after the other, satisfy the condition. (elements,)"""
    columns = {element_name(column.field): _array(batch, column).flatten() for column in node.columns}
    elements = len(next(iter(columns.values())))
    return kernels.as_mask(evaluate(node.condition, Batch(columns, elements, go_on=batch.go_on)))


def _array(batch: Batch, column: Column) -> pa.Array:
    return kernels.one_array(batch.column(column.field.name))


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
