"""The bound filter: a tree over the schema's fields, and the base class of the visitors that read it.

Binding has simplified the tree for its readers: negation occurs only at the leaves (De Morgan's laws also
hold in three-valued logic), a constant is on the right of its comparison, ``exists`` is ``is not null``, a
chain is a conjunction, and conjunctions contain no conjunctions.

**Null.** A leaf that meets a null is neither true nor false but *unknown*, negated or not; ``and`` and ``or``
are Kleene's; a row matches when the whole filter is true. A JSON path is null where the key is missing or
holds JSON's null, and a comparison is also unknown where the value has another type than the literal (the
reference since 2.6; before, a missing key made ``!=`` true). An array's element is null where the array is
shorter. ``is null`` is never unknown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, assert_never

import pyarrow as pa

from elanus.core.geometry import Boxes
from elanus.core.lookup import Lookup
from elanus.core.schema import DataType, FieldSchema, Scalar
from elanus.core.structs import struct_and_name
from elanus.core.types import KINDS, Family, FieldKind
from elanus.expr.jsonvalues import JsonSet, Path
from elanus.expr.like import LikePattern
from elanus.expr.regex import RegexPattern


class Comparator(StrEnum):
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def opposite(self) -> Comparator:
        """The comparator that holds exactly where this one does not."""
        return _OPPOSITE[self]

    @property
    def mirrored(self) -> Comparator:
        """The comparator for swapped operands: ``a < b`` is ``b > a``."""
        return _MIRRORED[self]


_C = Comparator
_OPPOSITE = {_C.EQ: _C.NE, _C.NE: _C.EQ, _C.LT: _C.GE, _C.GE: _C.LT, _C.GT: _C.LE, _C.LE: _C.GT}
_MIRRORED = {_C.EQ: _C.EQ, _C.NE: _C.NE, _C.LT: _C.GT, _C.GT: _C.LT, _C.LE: _C.GE, _C.GE: _C.LE}


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A field, a path into a JSON field (an empty path is the whole JSON value), or an array's element."""

    field: FieldSchema
    path: Path = ()

    @property
    def data_type(self) -> DataType:
        """The type of the values: for an array's element, the elements' type."""
        return self.field.element_type if self.is_element else self.field.data_type

    @property
    def kind(self) -> FieldKind:
        return KINDS[self.data_type]

    @property
    def arrow_type(self) -> pa.DataType:
        return self.field.element.arrow_type if self.is_element else self.field.arrow_type

    @property
    def is_element(self) -> bool:
        """An element of an array; its index is the whole path."""
        return bool(self.path) and self.field.data_type is DataType.ARRAY

    @property
    def is_array(self) -> bool:
        """A whole array."""
        return not self.path and self.field.data_type is DataType.ARRAY

    @property
    def is_json(self) -> bool:
        return self.field.kind.family is Family.JSON


class Moment(int):
    """A literal moment: microseconds since 1970 in UTC."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    value: Scalar

    @property
    def data_type(self) -> DataType:
        return type_of_value(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Length:
    """The number of elements of an array, or of the array at a JSON path."""

    column: Column

    @property
    def data_type(self) -> DataType:
        return DataType.INT64


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic:
    """``+ - * / %`` on numbers and ``& | ^ << >>`` on integers; ``data_type`` is Int64 or Double.

    Integers stay integers: ``/`` truncates towards zero, ``%`` has the sign of the left side, ``>>`` keeps
    the sign. Over JSON the value of each row decides. A row is unknown if a divisor is zero, or a shift is
    not by 0 to 63 bits, or a bit operator meets a number that is no integer.
    """

    operator: str
    left: Operand
    right: Operand
    data_type: DataType


Operand = Column | Constant | Length | Arithmetic


@dataclass(frozen=True, slots=True, eq=False)
class Always:
    value: bool


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """Two or more conditions, the cheapest first."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """Two or more conditions, the cheapest first."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """``left`` is never a constant. Both sides are numbers, text or booleans; JSON only meets constants."""

    comparator: Comparator
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """``column in values``; ``values`` have the column's Arrow type, without duplicates."""

    column: Column
    values: pa.Array
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class JsonMember:
    """``column in values`` for JSON; unknown where the value has none of the types in ``values``."""

    column: Column
    values: JsonSet
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class JsonContains:
    """Whether a JSON array contains any, or all, of ``values``; unknown where the value is not an array."""

    column: Column
    values: JsonSet
    need_all: bool
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class ArrayContains:
    """Whether an array contains any, or all, of ``literals``.

    ``values``: the distinct ones in the elements' Arrow type; ``has_impossible``: the type cannot hold one of
    the literals, so that no array contains all of them.
    """

    column: Column
    literals: Sequence[Scalar]
    values: pa.Array
    has_impossible: bool
    need_all: bool
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEqual:
    """Whether an array has exactly the elements ``literals``.

    ``values``: the literals in the elements' Arrow type; None if it cannot hold one of them.
    """

    column: Column
    literals: Sequence[Scalar]
    values: pa.Array | None
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Like:
    column: Column
    pattern: LikePattern
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Regex:
    """``column =~ pattern``.

    It is unknown where a text field, or the whole JSON or array field, is null. Unlike the other conditions
    it is false, so its negation true, where a JSON path is missing or holds no text, and where an array has
    no such element: as in the reference.
    """

    column: Column
    pattern: RegexPattern
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class TextMatch:
    """Whether a text contains tokens of ``text``: at least ``minimum`` of them, or all as a phrase.

    ``slop``: the positions by which the words of the phrase may be moved in all; None: no phrase is wanted.
    ``edits``: a token counts if so many edits turn it into one of ``text``; None: only equal tokens count.
    """

    column: Column
    text: str
    minimum: int
    slop: int | None
    negated: bool
    edits: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """``random_sample(factor)``; ``column`` is the primary key. It is never negated, and never in an `Or`."""

    column: Column
    factor: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class IsNull:
    column: Column
    negated: bool


class Test(Protocol):
    """The question of a `ColumnTest`. Immutable; a dataclass, so that `key_range.shape` knows it."""

    @property
    def cost(self) -> int:
        """In the unit of `elanus.expr.cost`."""

    def matches(self, column: pa.Array, boxes: Boxes | None) -> pa.Array:
        """Return a boolean for each value of the column, null for nulls.

        ``boxes``: the bounds of a column of geometries, if they are known.
        """

    def lookup(self, *, negated: bool) -> Lookup | None:
        """Return a lookup that finds at least the rows of which the test, or its negation, is true.

        None: an index cannot help.
        """

    def text(self, operand: str) -> str:
        """Return the test of that operand in the filter language."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTest:
    """A test of a field's values, defined in `elanus.expr.moments`, `.geometry` or `.membership`."""

    column: Column
    test: Test
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class ElementMatch:
    """Whether at least ``least`` and at most ``most`` elements of an array satisfy a condition.

    ``array``: the name of a struct array, or of an array of plain values.

    ``columns``: the arrays that the condition reads, at least one. ``condition``: over the elements of these
    arrays, which have the arrays' names. ``least`` None: all elements; ``most`` None: any number.
    ``chooses``: the condition also chooses the elements that a search of elements considers. It is unknown
    where the array is null; an element for which the condition is unknown does not satisfy it.
    """

    array: str
    columns: tuple[Column, ...]
    condition: Predicate
    least: int | None
    most: int | None
    function: str
    negated: bool

    @property
    def chooses(self) -> bool:
        return self.function == ELEMENT_FILTER


ELEMENT_FILTER = "element_filter"


def element_name(array: FieldSchema) -> str:
    """Return the name of the column of all elements of an array: ``$[title]`` of one of a struct array, else
    ``$``."""
    found = struct_and_name(array.name)
    return "$" if found is None else f"$[{found[1]}]"


Predicate = (
    Always
    | And
    | Or
    | Compare
    | Member
    | JsonMember
    | JsonContains
    | ArrayContains
    | ArrayEqual
    | Like
    | Regex
    | Sample
    | TextMatch
    | IsNull
    | ColumnTest
    | ElementMatch
)

T = TypeVar("T")


class Visitor(ABC, Generic[T]):
    """One reader of the tree, with a method per kind of node. `visit` calls the right one."""

    def visit(self, node: Predicate) -> T:
        match node:
            case Always():
                return self.always(node)
            case And():
                return self.conjunction(node)
            case Or():
                return self.disjunction(node)
            case Compare():
                return self.compare(node)
            case Member():
                return self.member(node)
            case JsonMember():
                return self.json_member(node)
            case JsonContains():
                return self.json_contains(node)
            case ArrayContains():
                return self.array_contains(node)
            case ArrayEqual():
                return self.array_equal(node)
            case Like():
                return self.like(node)
            case Regex():
                return self.regex(node)
            case Sample():
                return self.sample(node)
            case TextMatch():
                return self.text_match(node)
            case IsNull():
                return self.is_null(node)
            case ColumnTest():
                return self.column_test(node)
            case ElementMatch():
                return self.element_match(node)
            case _:
                assert_never(node)

    @abstractmethod
    def always(self, node: Always) -> T: ...
    @abstractmethod
    def conjunction(self, node: And) -> T: ...
    @abstractmethod
    def disjunction(self, node: Or) -> T: ...
    @abstractmethod
    def compare(self, node: Compare) -> T: ...
    @abstractmethod
    def member(self, node: Member) -> T: ...
    @abstractmethod
    def json_member(self, node: JsonMember) -> T: ...
    @abstractmethod
    def json_contains(self, node: JsonContains) -> T: ...
    @abstractmethod
    def array_contains(self, node: ArrayContains) -> T: ...
    @abstractmethod
    def array_equal(self, node: ArrayEqual) -> T: ...
    @abstractmethod
    def like(self, node: Like) -> T: ...
    @abstractmethod
    def regex(self, node: Regex) -> T: ...
    @abstractmethod
    def sample(self, node: Sample) -> T: ...
    @abstractmethod
    def text_match(self, node: TextMatch) -> T: ...
    @abstractmethod
    def is_null(self, node: IsNull) -> T: ...
    @abstractmethod
    def column_test(self, node: ColumnTest) -> T: ...
    @abstractmethod
    def element_match(self, node: ElementMatch) -> T: ...


def type_of_value(value: object) -> DataType:
    """The field type of a literal."""
    if isinstance(value, bool):
        return DataType.BOOL
    if isinstance(value, Moment):
        return DataType.TIMESTAMPTZ
    if isinstance(value, int):
        return DataType.INT64
    if isinstance(value, float):
        return DataType.DOUBLE
    if isinstance(value, str):
        return DataType.VARCHAR
    return DataType.ARRAY


def columns_of(operand: Operand) -> tuple[Column, ...]:
    """The columns an operand reads."""
    match operand:
        case Column():
            return (operand,)
        case Length():
            return (operand.column,)
        case Constant():
            return ()
        case Arithmetic():
            return columns_of(operand.left) + columns_of(operand.right)
        case _:
            assert_never(operand)


def columns_in(predicate: Predicate) -> Iterator[Column]:
    """The columns that a condition reads; one that it reads twice is there twice."""
    match predicate:
        case Always():
            return
        case And() | Or():
            for child in predicate.children:
                yield from columns_in(child)
        case Compare():
            yield from columns_of(predicate.left)
            yield from columns_of(predicate.right)
        case ElementMatch():
            yield from predicate.columns
        case _:
            yield predicate.column
