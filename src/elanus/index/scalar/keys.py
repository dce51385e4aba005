"""The distinct values of a field in ascending order: where a lookup begins.

A lookup becomes *spans*, ranges of key numbers. The rows or bits of the keys are kept next to them, in
the same order, so a range of values is one span. Texts are ordered by their UTF-8 bytes, as the
filter language compares them. NaN is no key: no lookup finds it. -0.0 and 0.0 are one key.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.lookup import (
    Between,
    Holds,
    HoldsSuch,
    Inside,
    Lookup,
    Matching,
    Near,
    OneOf,
    StartsWith,
    Value,
)

Spans = npt.NDArray[np.int64]
"""Shape (m, 2): half-open ranges of key numbers, none empty, none overlapping."""

_NO_SPANS = np.empty((0, 2), np.int64)
_SINGLY_MAX = 64
"""So many texts are looked up one by one; more are hashed, and all keys are compared with them."""
_LISTED_MAX = 256
"""Up to so many keys are kept in a dictionary too, from the first lookup on: all those of a bitmap."""


class Keys(ABC):
    """Sorted keys. `spans` finds those of a lookup."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to store in an index file; `keys_of_file` reads them back."""

    @property
    def memory_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def spans(self, lookup: Lookup) -> Spans | None:
        """Return the keys that match; None if keys of this type cannot answer the lookup."""
        match lookup:
            case OneOf() | Holds():
                return self._among(lookup.values)
            case Between():
                return self._between(lookup)
            case StartsWith():
                return self._prefixed(lookup.prefix)
            case HoldsSuch():
                return self.spans(lookup.lookup)
            case Matching() | Near() | Inside():
                return None

    @abstractmethod
    def _among(self, values: pa.Array) -> Spans | None: ...
    @abstractmethod
    def _between(self, bounds: Between) -> Spans | None: ...
    @abstractmethod
    def _prefixed(self, prefix: str) -> Spans | None: ...


class NumberKeys(Keys):
    """Numbers or booleans. ``values``: sorted; they may repeat where one row belongs to each."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values
        self._is_bool = values.dtype == np.bool_
        self._limits: tuple[int, int] | None = None
        if values.dtype.kind == "i":
            limits = np.iinfo(values.dtype)
            self._limits = int(limits.min), int(limits.max)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"keys": self._values}

    def _among(self, values: pa.Array) -> Spans | None:
        if not (pa.types.is_boolean(values.type) if self._is_bool else _is_number(values.type)):
            return None
        wanted = values.to_numpy(zero_copy_only=False)
        if wanted.dtype != self._values.dtype:
            return None
        if wanted.dtype.kind == "f" and np.isnan(wanted).any():
            return None
        wanted = np.unique(wanted)
        first = np.searchsorted(self._values, wanted, "left")
        last = np.searchsorted(self._values, wanted, "right")
        return _spans(first, last)

    def _between(self, bounds: Between) -> Spans | None:
        if self._is_bool or not (_is_bound(bounds.low) and _is_bound(bounds.high)):
            return None
        first, last = 0, len(self._values)
        if bounds.low is not None:
            first = self._place(bounds.low, after_equal=not bounds.low_included)
        if bounds.high is not None:
            last = self._place(bounds.high, after_equal=bounds.high_included)
        return _span(first, last)

    def _prefixed(self, prefix: str) -> Spans | None:
        return None

    def _place(self, bound: Any, *, after_equal: bool) -> int:
        """Return how many values are below the bound, or not above it.

        Whole numbers are compared exactly with any bound; floating values with the bound in their precision.
        """
        limits, number = self._limits, self._values.dtype.type
        if limits is None:
            with np.errstate(over="ignore"):
                return self._searched(number(bound), after_equal)
        smallest, largest = limits
        if bound > largest:
            return len(self._values)
        if bound < smallest:
            return 0
        below = math.floor(bound)  # between `below` and the bound there is no whole number
        return self._searched(number(below), after_equal or below != bound)

    def _searched(self, value: Any, after_equal: bool) -> int:
        return int(self._values.searchsorted(value, "right" if after_equal else "left"))


class TextKeys(Keys):
    """Texts. ``offsets``: int64 (n + 1,), where each begins in ``data``, their UTF-8 bytes."""

    def __init__(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        self._offsets = offsets
        self._data = data
        self._sequence = _Texts(offsets, data)
        self._place_of: dict[bytes, int] | None = None

    @classmethod
    def of(cls, texts: pa.Array) -> TextKeys:
        """``texts``: sorted and distinct strings without null."""
        large = texts.cast(pa.large_string())
        _, offset_buffer, data_buffer = large.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[large.offset : large.offset + len(large) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.frombuffer(data_buffer, np.uint8)[first:last] if last > first else np.empty(0, np.uint8)
        return cls(offsets - first, data)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"key_offsets": self._offsets, "key_bytes": self._data}

    @property
    def texts(self) -> pa.Array:
        """The keys as large strings, without a copy."""
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)

    def _among(self, values: pa.Array) -> Spans | None:
        if not pa.types.is_string(values.type):
            return None
        if len(values) > _SINGLY_MAX:
            held = pc.is_in(self.texts, value_set=values.cast(pa.large_string()))
            places = np.flatnonzero(held.to_numpy(zero_copy_only=False))
            return _spans(places, places + 1)
        wanted = {text.encode() for text in values.to_pylist()}
        found = sorted(place for text in wanted if (place := self._place(text)) >= 0)
        return np.array([(place, place + 1) for place in found], np.int64).reshape(-1, 2)

    def _place(self, text: bytes) -> int:
        """Return the number of this key; -1 if there is none."""
        if len(self) > _LISTED_MAX:
            place = bisect_left(self._sequence, text)
            return place if place < len(self) and self._sequence[place] == text else -1
        if self._place_of is None:  # two threads may both make one: they are equal
            self._place_of = {key: place for place, key in enumerate(self._sequence)}
        return self._place_of.get(text, -1)

    def _between(self, bounds: Between) -> Spans | None:
        first, last = 0, len(self)
        if bounds.low is not None:
            if not isinstance(bounds.low, str):
                return None
            find = bisect_left if bounds.low_included else bisect_right
            first = find(self._sequence, bounds.low.encode())
        if bounds.high is not None:
            if not isinstance(bounds.high, str):
                return None
            find = bisect_right if bounds.high_included else bisect_left
            last = find(self._sequence, bounds.high.encode())
        return _span(first, last)

    def _prefixed(self, prefix: str) -> Spans | None:
        start = prefix.encode()
        if not start:
            return _span(0, len(self))
        beyond = start[:-1] + bytes([start[-1] + 1])  # UTF-8 has no byte 255
        return _span(bisect_left(self._sequence, start), bisect_left(self._sequence, beyond))


def keys_of_file(arrays: Mapping[str, npt.NDArray[Any]]) -> Keys:
    """Read the keys of an index file."""
    if "keys" in arrays:
        return NumberKeys(arrays["keys"])
    return TextKeys(arrays["key_offsets"], arrays["key_bytes"])


class _Texts(Sequence[bytes]):
    """The texts as bytes, each made when it is asked for."""

    def __init__(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        self._offsets = offsets
        self._data = data.data

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        return self._data[self._offsets[number] : self._offsets[number + 1]].tobytes()


def _is_number(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type))


def _is_bound(value: Value | None) -> bool:
    """Whether a bound has a place among numbers."""
    if value is None:
        return True
    return not isinstance(value, str | bool) and not (isinstance(value, float) and math.isnan(value))


def _span(first: int, last: int) -> Spans:
    return np.array([[first, last]], np.int64) if first < last else _NO_SPANS


def _spans(first: npt.NDArray[Any], last: npt.NDArray[Any]) -> Spans:
    spans = np.stack((first, last), axis=1).astype(np.int64)
    return spans[spans[:, 0] < spans[:, 1]]
