"""``membership_match(field, {template}, type=roaring)``: whether a value is in a set that the client built.

The value of the template is the set in bytes, with a head of 32 bytes that says of which kind it is. A Bloom
filter has integers or texts, and some values too many. A Roaring bitmap has integers, and is exact.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.bloom import BloomFilter
from elanus.core.limits import MEMBERSHIP_FILTER_MAX_BYTES
from elanus.core.roaring import RoaringBitmap
from elanus.core.schema import DataType
from elanus.core.types import Family, family_of, type_name
from elanus.expr import syntax
from elanus.expr.jsonvalues import JsonValues
from elanus.expr.source import Source
from elanus.expr.tree import And, Column, ColumnTest, Or, Predicate, Test

if TYPE_CHECKING:
    from elanus.core.geometry import Boxes
    from elanus.expr.operands import OperandBinder

MEMBERSHIP = "membership_match"
"""The function, in small letters: case does not matter."""
BLOOM, ROARING = "bloom", "roaring"
_MAGIC = {b"MBF1": BLOOM, b"MRB1": ROARING}
_HEAD_BYTES = 32
_BLOOM_HEAD = struct.Struct("<4sHHQdIBBBB")
_ROARING_HEAD = struct.Struct("<4sHHQQQ")
_BLOCK_BYTES = 32
_INTEGERS, _TEXTS = 1, 2
_DOMAINS = {_INTEGERS: "int64", _TEXTS: "utf8"}
_USAGE = "write membership_match(field, {set}, type=roaring)"
_BUILD = "build it with pymilvus' build_bloom_filter or build_roaring_bitmap"


@dataclass(frozen=True, slots=True)
class BloomTest:
    """``blob``: the Bloom filter with its head. ``domains``: the kinds of values that it was built from."""

    blob: bytes
    domains: int

    cost = 60

    def matches(self, column: pa.Array, boxes: Boxes | None = None) -> pa.Array:
        del boxes
        domain = _INTEGERS if pa.types.is_integer(column.type) else _TEXTS
        missing = column.is_null().to_numpy(zero_copy_only=False)
        found = np.zeros(len(column), np.bool_)
        if self.domains & domain:
            known = column.drop_null()
            keys = known.cast(pa.int64()) if domain == _INTEGERS else known
            found[~missing] = BloomFilter.from_bytes(memoryview(self.blob)[_HEAD_BYTES:]).may_contain(keys)
        return pa.array(found, mask=missing)

    def lookup(self, *, negated: bool) -> None:
        del negated

    def text(self, operand: str) -> str:
        return f"{MEMBERSHIP}({operand}, {{{BLOOM}}}, type={BLOOM})"


@dataclass(frozen=True, slots=True)
class RoaringTest:
    bitmap: RoaringBitmap

    cost = 250

    def matches(self, column: pa.Array, boxes: Boxes | None = None) -> pa.Array:
        del boxes
        missing = column.is_null().to_numpy(zero_copy_only=False)
        found = np.zeros(len(column), np.bool_)
        found[~missing] = self.bitmap.contains(column.drop_null().cast(pa.int64()).to_numpy())
        return pa.array(found, mask=missing)

    def lookup(self, *, negated: bool) -> None:
        del negated

    def text(self, operand: str) -> str:
        return f"{MEMBERSHIP}({operand}, {{{ROARING}}}, type={ROARING})"


def bind_membership_match(
    source: Source, node: syntax.Call, operands: OperandBinder, values: Mapping[str, object]
) -> Predicate:
    """Bind a call of `MEMBERSHIP`. ``values``: of the filter's templates. Raises `InvalidFilter`."""
    arguments = [one for one in node.arguments if not isinstance(one, syntax.Option)]
    option = next((one for one in node.arguments if isinstance(one, syntax.Option)), None)
    if len(arguments) != 2:
        what = (
            f"{MEMBERSHIP} requires exactly 2 positional arguments; use type=bloom|roaring for the optional "
            "kind"
        )
        raise source.error(what, node.start, _USAGE)
    column, template = operands.bind(arguments[0]), arguments[1]
    if not isinstance(column, Column):
        what = (
            f"the first argument of {MEMBERSHIP} must be a scalar field name, got: {source.of(arguments[0])}"
        )
        raise source.error(what, arguments[0].start, _USAGE)
    if not isinstance(template, syntax.Template):
        what = (
            f"the second argument of {MEMBERSHIP} must be a {{template}} placeholder carrying a client "
            "pre-built membership filter blob"
        )
        raise source.error(what, template.start, _USAGE)
    blob = _blob(source, template, values)
    kind = _kind(source, template, blob)
    wanted = None if option is None else _wanted(source, option)
    if wanted not in (None, kind):
        what = f'{MEMBERSHIP} type "{wanted}" does not match filter blob format'
        raise source.error(what, node.start, f"the value of {{{template.name}}} is a {kind} filter")
    _check_column(source, arguments[0], column, kind)
    body_bytes = len(blob) - _HEAD_BYTES
    if body_bytes > MEMBERSHIP_FILTER_MAX_BYTES:
        what = f"membership filter blob body is {body_bytes} bytes, exceeding {MEMBERSHIP_FILTER_MAX_BYTES}"
        raise source.error(what, template.start, "take fewer members, or a higher share of false positives")
    try:
        test = _bloom_test(blob) if kind == BLOOM else _roaring_test(blob)
    except ValueError as problem:
        what = f"{kind} filter blob is invalid: {problem}"
        raise source.error(what, template.start, _BUILD) from None
    if isinstance(test, BloomTest):
        _check_domain(source, template, column, test.domains)
    return ColumnTest(column, test, negated=False)


def has_bloom_filter(predicate: Predicate) -> bool:
    """Whether a condition may be true of rows whose values are not in the set that the client meant."""
    if isinstance(predicate, And | Or):
        return any(map(has_bloom_filter, predicate.children))
    return isinstance(predicate, ColumnTest) and isinstance(predicate.test, BloomTest)


def in_documents(test: Test, values: JsonValues) -> pa.Array:
    """Test the whole numbers and texts at a JSON path; any other value is unknown. shape (rows,)"""
    found = [test.matches(part, None) for part in (values.integers, values.strings) if part is not None]
    return pc.coalesce(*found) if found else pa.nulls(values.rows, pa.bool_())


def _blob(source: Source, template: syntax.Template, values: Mapping[str, object]) -> bytes:
    if template.name not in values:
        what = f"the value of expression template variable name {{{template.name}}} is not found"
        raise source.error(what, template.start, f"values given: {', '.join(sorted(values)) or 'none'}")
    blob = values[template.name]
    if isinstance(blob, bytes):
        return blob
    what = (
        f"the value of {MEMBERSHIP} template variable {{{template.name}}} must be a client pre-built "
        "membership filter blob (bytes)"
    )
    raise source.error(what, template.start, _BUILD)


def _kind(source: Source, template: syntax.Template, blob: bytes) -> str:
    kind = _MAGIC.get(blob[:4])
    if kind is not None and len(blob) >= _HEAD_BYTES:
        return kind
    what = (
        'membership filter blob has unknown format magic; supported formats are "MBF1" (bloom) and "MRB1" '
        "(roaring)"
    )
    if len(blob) < _HEAD_BYTES:
        what = f"membership filter blob is {len(blob)} bytes, too short to carry a format header"
    raise source.error(what, template.start, _BUILD)


def _wanted(source: Source, option: syntax.Option) -> str:
    name = option.value.name.lower() if isinstance(option.value, syntax.Name) else ""
    if option.name.lower() != "type" or name not in (BLOOM, ROARING):
        what = f"malformed {MEMBERSHIP} call: type must be bloom or roaring"
        raise source.error(what, option.start, _USAGE)
    return name


def _check_column(source: Source, node: syntax.Node, column: Column, kind: str) -> None:
    name, text = type_name(column.field.data_type), source.of(node)
    if column.path and not column.is_json:
        what = f"{MEMBERSHIP} does not support nested paths on non-JSON fields, got: {text}"
        raise source.error(what, node.start, "use array_contains")
    family = family_of(column.data_type)
    if family is Family.INTEGER:
        return
    if kind == ROARING:
        types = "INT8/INT16/INT32/INT64 fields"
    elif family is Family.JSON or column.data_type is DataType.VARCHAR:
        return
    else:
        types = "INT8/INT16/INT32/INT64/VARCHAR fields and JSON paths"
    what = f"{MEMBERSHIP} only supports {types}, but field ({text}) is of type {name}"
    raise source.error(what, node.start, "list the values: field in [..]")


def _check_domain(source: Source, template: syntax.Template, column: Column, domains: int) -> None:
    due = _INTEGERS if family_of(column.data_type) is Family.INTEGER else _TEXTS
    if column.is_json or not domains or domains & due:
        return
    what = (
        f"{MEMBERSHIP} filter blob was built from the {_DOMAINS[domains]} value domain but field "
        f"({type_name(column.data_type)}) requires the {_DOMAINS[due]} domain"
    )
    raise source.error(what, template.start, "rebuild the filter from values of the field's type")


def _bloom_test(blob: bytes) -> BloomTest:
    """Raises `ValueError`."""
    _, version, algorithm, _, _, blocks, domains, *rest = _BLOOM_HEAD.unpack_from(blob)
    _check_head(version, algorithm, any(rest))
    if domains & ~(_INTEGERS | _TEXTS):
        raise ValueError(f"it declares unknown value domains 0x{domains:02x}")
    if not blocks or blocks & (blocks - 1):
        raise ValueError(f"its number of blocks is {blocks}, no power of two")
    if len(blob) - _HEAD_BYTES != blocks * _BLOCK_BYTES:
        raise ValueError(f"it has {len(blob) - _HEAD_BYTES} bytes for {blocks} blocks")
    return BloomTest(blob, domains)


def _roaring_test(blob: bytes) -> RoaringTest:
    """Raises `ValueError`."""
    _, version, layout, members, body_bytes, reserved = _ROARING_HEAD.unpack_from(blob)
    _check_head(version, layout, bool(reserved))
    if body_bytes != len(blob) - _HEAD_BYTES:
        raise ValueError(f"it has {len(blob) - _HEAD_BYTES} bytes, and declares {body_bytes}")
    bitmap = RoaringBitmap(blob[_HEAD_BYTES:])
    if bitmap.members != members:
        raise ValueError(f"it has {bitmap.members} members, and declares {members}")
    return RoaringTest(bitmap)


def _check_head(version: int, layout: int, is_reserved_used: bool) -> None:
    if (version, layout) != (1, 1):
        raise ValueError(f"its version is {version}.{layout}, not 1.1")
    if is_reserved_used:
        raise ValueError("its reserved bytes are not 0")
