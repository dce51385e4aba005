"""Where rows of an import are, and what is wrong with them, in the words of a user who has the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from elanus.core.errors import InvalidParameter
from elanus.core.row_faults import Fault, Problem
from elanus.core.types import Family

_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows stand: ``first_row`` is the number of the first one within the file, from 0.

    ``rows_before`` counts the rows before the group where ``first_row`` is only counted from there: that
    means reading them, so it is called for an error only.
    """

    file: str
    row_group: int
    first_row: int
    rows_before: Callable[[], int] | None = None

    def moved(self, rows: int) -> Place:
        """Return the place so many rows further on."""
        return replace(self, first_row=self.first_row + rows)

    def row(self, number: int) -> int:
        """Return the number within the file of a row of this batch."""
        return self.first_row + number + self._before()

    def _before(self) -> int:
        return self.rows_before() if self.rows_before is not None else 0

    def refuse(self, field: str, row: int, why: str) -> NoReturn:
        """Raises `InvalidParameter` about one row of this batch."""
        raise self._error(field, row, why)

    def duplicate(self, field: str, row: int, key: object) -> InvalidParameter:
        """Return why a row of this batch is refused whose key is there already."""
        return self._error(
            field,
            row,
            f"is {_shown(key)}, a key that an earlier row of the import or of the collection has already "
            "(duplicates=reject): leave the row out, or choose first or last",
        )

    def refusal(self, fault: Fault) -> InvalidParameter:
        """A fault that `elanus.core.rows` has found in this batch, in words for the owner of the file."""
        field = fault.field
        match fault.problem:
            case Problem.NUMBER | Problem.LENGTH | Problem.NULL_ELEMENT if field.kind.family is Family.LIST:
                why = _element_fault(fault)
            case Problem.CAPACITY:
                why = f"has {fault.value} elements, its max_capacity is {field.max_capacity}"
            case Problem.NULL:
                why = "is null: it is neither nullable nor has a default value"
            case Problem.NUMBER:
                why = f"cannot hold {fault.value}: its type is {field.data_type.name}"
            case Problem.LENGTH:
                length = len(str(fault.value).encode())
                why = f"is {length} bytes long, its max_length is {field.max_length}: {_shown(fault.value)}"
            case Problem.NOT_FINITE if field.kind.family is not Family.VECTOR:
                why = f"holds {fault.value}: numbers are finite"
            case Problem.NOT_FINITE:
                dtype = field.vector.dtype.name
                why = f"holds {fault.value} at position {fault.position}: vectors are finite {dtype}"
            case Problem.SPARSE:
                why = f"holds no sparse vector: {fault.detail}"
            case Problem.GEOMETRY:
                why = f"holds no geometry: {fault.detail}"
            case Problem.MOMENT:
                why = f"holds no moment: {fault.detail}"
            case Problem.DOCUMENT:
                counted = f", counted from row {before}" if (before := self._before()) else ""
                return InvalidParameter(f"{self.file}, row group {self.row_group}: {fault.detail}{counted}")
        return self._error(field.name, fault.row, why)

    def _error(self, field: str, row: int, why: str) -> InvalidParameter:
        return InvalidParameter(
            f"{self.file}, row group {self.row_group}, row {self.row(row)}: field {field} {why}"
        )


@dataclass(frozen=True, slots=True)
class PlaceOfElements(Place):
    """Where the elements of lists stand: those of row i from ``offsets[i]`` up to ``offsets[i + 1]``."""

    offsets: npt.NDArray[np.int64] = field(kw_only=True)

    def refuse(self, field: str, row: int, why: str) -> NoReturn:
        """Raises `InvalidParameter` about one element; ``row``: its number."""
        of = int(np.searchsorted(self.offsets, row, side="right")) - 1
        raise self._error(field, of, f"{why}, in its element {row - int(self.offsets[of])}")


def _element_fault(fault: Fault) -> str:
    where, element = f"at position {fault.position}", fault.field.element
    match fault.problem:
        case Problem.NUMBER:
            return f"cannot hold {fault.value} {where}: its elements have type {element.data_type.name}"
        case Problem.LENGTH:
            length = len(str(fault.value).encode())
            shown = _shown(fault.value)
            return f"has {length} bytes {where}, its max_length is {element.max_length}: {shown}"
        case _:
            return f"holds a null {where}: elements of arrays are never null"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
