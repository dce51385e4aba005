"""The literals of a long list, in pieces.

Python needs a tenth of a second to look at, or to free, a list of six million numbers, and no other thread
runs meanwhile. Pieces of some thousand become Arrow arrays as soon as they are parsed, so that there never
are millions of Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa

from elanus.core.pieces import pieces
from elanus.core.schema import Scalar

_ARROW: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
}
_PYTHON = {arrow: python for python, arrow in _ARROW.items()}

Piece: TypeAlias = "Sequence[Any] | pa.Array"
"""Some of the literals: as an array if they have one type, which holds them all."""


class LongLiterals(Sequence[Scalar]):
    """Many literals. Immutable."""

    def __init__(self, parts: Iterable[list[Scalar]]) -> None:
        self.pieces: tuple[Piece, ...] = tuple(map(_packed, parts))

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> Iterator[Scalar]:
        for piece in self.pieces:
            yield from piece.to_pylist() if isinstance(piece, pa.Array) else piece

    @overload
    def __getitem__(self, index: int) -> Scalar: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scalar]: ...
    def __getitem__(self, index: int | slice) -> Scalar | list[Scalar]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        left = index
        for piece in self.pieces:
            if left < len(piece):
                value: Scalar = piece[left].as_py() if isinstance(piece, pa.Array) else piece[left]
                return value
            left -= len(piece)
        raise IndexError(index)


def pieces_of(items: Sequence[Any]) -> Iterator[Piece]:
    """Yield a list in pieces."""
    if isinstance(items, LongLiterals):
        yield from items.pieces
    else:
        for piece in pieces(len(items)):
            yield items[piece]


def types_in(items: Sequence[Any]) -> set[type]:
    """Return the types of the items."""
    found: set[type] = set()
    for piece in pieces_of(items):
        found |= {_PYTHON[piece.type]} if isinstance(piece, pa.Array) else set(map(type, piece))
    return found


def array_from(items: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return the items as an array. Integers become floating numbers as numpy rounds them.

    Raises `OverflowError` for integers that the type cannot hold.
    """
    return pa.concat_arrays([_as(piece, arrow_type) for piece in pieces_of(items)])


def _as(piece: Piece, arrow_type: pa.DataType) -> pa.Array:
    if not isinstance(piece, pa.Array):
        numbers = np.asarray(piece, np.float64) if arrow_type == pa.float64() else piece
        return pa.array(numbers, arrow_type)
    return piece if piece.type == arrow_type else piece.cast(arrow_type, safe=False)


def _packed(part: list[Scalar]) -> Piece:
    kinds = set(map(type, part))
    if len(kinds) != 1:
        return part
    try:
        return pa.array(part, _ARROW[kinds.pop()])
    except OverflowError:
        return part
