"""The parser's result: a tree that knows its position in the text, and nothing about fields.

Every node covers the characters from ``start`` up to ``end`` of the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elanus.core.schema import Scalar
from elanus.expr.long_list import LongLiterals


@dataclass(frozen=True, slots=True)
class Node:
    start: int
    end: int

    def children(self) -> Iterator[Node]:
        """The direct children of this node."""
        for name in type(self).__slots__:
            value = getattr(self, name)
            if isinstance(value, Node):
                yield value
            elif isinstance(value, tuple):
                yield from (part for part in value if isinstance(part, Node))


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: Scalar


@dataclass(frozen=True, slots=True)
class LiteralList(Node):
    """A list of plain literals, such as ``[1, 2, 3]``."""

    values: list[Scalar]


@dataclass(frozen=True, slots=True)
class LongList(Node):
    """A list of thousands of plain literals."""

    values: LongLiterals


@dataclass(frozen=True, slots=True)
class Listing(Node):
    """Any other list: empty, nested, or with computed elements such as ``[2 * 3, {limit}]``."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Template(Node):
    """``{name}``: its value is passed separately from the text."""

    name: str


@dataclass(frozen=True, slots=True)
class Iso(Node):
    """``ISO '2025-01-01T00:00:00Z'``: a moment."""

    text: str


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """``INTERVAL 'P1D'``: a duration."""

    text: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A field or dynamic key, with the path into it: ``meta["a"][0]`` has the path ``("a", 0)``.

    ``bare``: where the last step stands if it has no quotes, as a field of a struct array has none:
    ``clips[0][title]``.
    """

    name: str
    path: tuple[str | int, ...] = ()
    bare: int | None = None


@dataclass(frozen=True, slots=True)
class Element(Node):
    """``$[name]``: a field of one struct of a struct array. ``$``, whose ``name`` is empty: an element of an
    array of plain values."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Option(Node):
    """``name=value``, the last argument of a call."""

    name: str
    value: Node


@dataclass(frozen=True, slots=True)
class Sign(Node):
    """``-operand``, ``+operand`` or ``~operand``."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """``+ - * / % ** & | ^ << >>`` between two operands."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """``== != < <= > >=`` between two operands."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """``1 < a <= 5``."""

    operators: tuple[str, str]
    operands: tuple[Node, Node, Node]


@dataclass(frozen=True, slots=True)
class Member(Node):
    """``item in values``, ``item not in values``."""

    item: Node
    values: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Like(Node):
    item: Node
    pattern: Node


@dataclass(frozen=True, slots=True)
class Regex(Node):
    """``item =~ pattern``, ``item !~ pattern``."""

    item: Node
    pattern: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Null(Node):
    """``item is null``, ``item is not null``."""

    item: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists(Node):
    item: Node


@dataclass(frozen=True, slots=True)
class Negation(Node):
    operand: Node


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """``and`` or ``or`` over two or more operands."""

    operator: str
    operands: tuple[Node, ...]
