"""A value of any type that the role interfaces use: what is sent through the carriers in their tests."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints


def sample(of: Any, seed: int = 1) -> Any:
    """Differs by ``seed``, so that two arguments of one type differ."""
    if isinstance(of, NewType):
        return sample(of.__supertype__, seed)
    if dataclasses.is_dataclass(of):
        hints = get_type_hints(of)
        return of(**{f.name: sample(hints[f.name], seed + n) for n, f in enumerate(dataclasses.fields(of))})
    if isinstance(of, type) and issubclass(of, Enum):
        return list(of)[seed % len(of)]
    if get_origin(of) is not None:
        return _sample_of_generic(get_origin(of), get_args(of), seed)
    plain = {
        bool: seed % 2 == 0,
        int: 2**62 + seed,
        float: seed + 0.5,
        str: f"text {seed} ü",
        bytes: f"bytes {seed}".encode(),
        type(None): None,
    }
    return plain[of]


def _sample_of_generic(origin: Any, arguments: tuple[Any, ...], seed: int) -> Any:
    if origin in (Union, types.UnionType):
        return sample(next(a for a in arguments if a is not type(None)), seed)
    if origin in (dict, Mapping):
        return {sample(arguments[0], seed + n): sample(arguments[1], seed + n) for n in range(2)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(sample(a, seed + n) for n, a in enumerate(arguments))
    values = [sample(arguments[0], seed + n) for n in range(2)]
    return values if origin in (list, Sequence) else origin(values)
