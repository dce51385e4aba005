"""The faults that values of rows can have, and how an insert reports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import cast

import numpy as np

from elanus.core.errors import InvalidParameter
from elanus.core.schema import FieldSchema
from elanus.core.types import Family


class Problem(Enum):
    NULL = "a null where none is allowed"
    NUMBER = "a number that the type cannot hold"
    LENGTH = "a text that is too long"
    CAPACITY = "an array with too many elements"
    NULL_ELEMENT = "a null inside an array"
    NOT_FINITE = "a vector, or a number, that is NaN or an infinity"
    DOCUMENT = "no valid JSON document"
    SPARSE = "bytes that are no sparse vector"
    MOMENT = "a text that is no moment"
    GEOMETRY = "a text, or bytes, that are no geometry"


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that does not fit. ``row``: within the batch; ``position``: within the vector or array.

    ``value``: the number or text; for `Problem.CAPACITY` the number of elements. ``detail``: for a document,
    the whole message, with rows counted from the ``first_row`` that was passed to `conform`; for a sparse
    vector, a moment or a geometry, what is wrong with it.
    """

    field: FieldSchema
    problem: Problem
    row: int
    value: object = None
    position: int = 0
    detail: str = ""


_OF_ELEMENTS = frozenset({Problem.NUMBER, Problem.LENGTH, Problem.NULL_ELEMENT})
"""The problems that an element of an array can have."""
Refusal = Callable[[Fault], InvalidParameter]


def insert_refusal(fault: Fault) -> InvalidParameter:
    """Word the fault as the reference does, where it has a message: conformance suites check them."""
    row, name = fault.row, fault.field.name
    in_array = fault.field.kind.family is Family.LIST and fault.problem in _OF_ELEMENTS
    # The reference numbers the elements of an array as it numbers the rows of other fields.
    field, number = (fault.field.element, fault.position) if in_array else (fault.field, row)
    where = f"field {name}, row {row}" if in_array else f"field {name}"
    match fault.problem:
        case Problem.NULL if field.kind.vector is not None:
            text = f"vector field {field.name} cannot be null"
        case Problem.NULL:
            text = f"field {field.name} is null in row {row}: it is neither nullable nor has a default value"
        case Problem.NUMBER if field.kind.integer_range is not None:
            low, high = field.kind.integer_range
            text = f"the {number}th element ({fault.value}) out of range: [{low}, {high}], {where}"
        case Problem.NUMBER:
            text = f"the {number}th element ({fault.value}) is no {field.data_type.name}, {where}"
        case Problem.LENGTH:
            length = len(str(fault.value).encode())
            text = (
                f"the length ({length}) of {number}th string exceeds max length "
                f"({field.max_length})[expected=valid length string][actual=string length exceeds max length]"
                f", {where}: {_too_long(fault, in_array=in_array)} length: {length}, "
                f"max length: {field.max_length}"
            )
        case Problem.CAPACITY:
            text = (
                f"the length ({fault.value}) of {row}th array exceeds max capacity ({field.max_capacity})"
                f"[expected=valid length array][actual=array length exceeds max capacity], field {name}"
            )
        case Problem.NULL_ELEMENT:
            text = f"the {number}th element is null, {where}: elements of arrays are never null"
        case Problem.NOT_FINITE:
            text = (
                f"value '{_go_number(cast(float, fault.value))}' is not a number or infinity: "
                f"field {field.name}, row {row}"
            )
        case Problem.SPARSE:
            text = f"{fault.detail}: field {field.name}, row {row}"
        case Problem.MOMENT | Problem.GEOMETRY:
            text = f"{fault.detail}: field {field.name}, row {row}"
        case Problem.DOCUMENT:
            text = fault.detail
    return InvalidParameter(text)


def _too_long(fault: Fault, *, in_array: bool) -> str:
    """Return the reference's newer words for a text that is too long: clients match either text."""
    name, row = fault.field.name, fault.row
    if in_array:
        return (
            f'length of Array array field "{name}" exceeds max length, row number: {row}, '
            f"array index: {fault.position},"
        )
    return f"length of varchar field {name} exceeds max length, row number: {row},"


def _go_number(value: float) -> str:
    """Format NaN, +Inf and -Inf as the reference does."""
    return "NaN" if np.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
