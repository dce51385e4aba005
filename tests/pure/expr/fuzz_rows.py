"""Random rows for the filter fuzz test, of every scalar type, with the values at which programs go wrong."""

from __future__ import annotations

import json
import math
import struct
from random import Random
from typing import Any

import pyarrow as pa

from elanus.core.ids import FieldID
from elanus.core.schema import CollectionSchema, DataType, FieldSchema
from elanus.core.structs import StructSchema

Row = dict[str, Any]

INTEGERS = {"tiny": 8, "small": 16, "medium": 32, "large": 64, "id": 64}
"""The integer fields, with their bits."""
FLOATING = ("price", "score")
TEXTS = ("color", "name")
ARRAYS = {
    "bytes": DataType.INT8,
    "longs": DataType.INT64,
    "singles": DataType.FLOAT,
    "doubles": DataType.DOUBLE,
    "labels": DataType.VARCHAR,
    "flags": DataType.BOOL,
}
"""The array fields, with the types of their elements."""
MEMBERS = {
    "size": DataType.INT64,
    "rate": DataType.DOUBLE,
    "label": DataType.VARCHAR,
    "shown": DataType.BOOL,
}
"""The fields of the struct array ``clips``."""

WORDS = ("", "a", "ab", "abc", "b%", "a_c", "b\\", "a\nb", "é", "z", "漢字", "😀", "A", "a'\"", "1")
_WHOLE = (0, 1, -1, 2, 3, -2, 5, 7, -8)
_EDGES = (2**53, 2**53 + 1, -(2**53) - 1)
_FRACTIONS = (0.0, -0.0, 0.5, -0.5, 1.0, 2.0, -3.0, 0.1, 1e300, -1e-300, math.inf, -math.inf, math.nan)


def _field(number: int, name: str, data_type: DataType, **more: Any) -> FieldSchema:
    return FieldSchema(FieldID(100 + number), name, data_type, **more)


SCHEMA = CollectionSchema(
    "fuzz",
    (
        _field(0, "id", DataType.INT64, is_primary=True),
        _field(1, "tiny", DataType.INT8, nullable=True),
        _field(2, "small", DataType.INT16, nullable=True),
        _field(3, "medium", DataType.INT32, nullable=True),
        _field(4, "large", DataType.INT64, nullable=True),
        _field(5, "price", DataType.DOUBLE, nullable=True),
        _field(6, "score", DataType.FLOAT, nullable=True),
        _field(7, "color", DataType.VARCHAR, max_length=64, nullable=True),
        _field(8, "name", DataType.VARCHAR, max_length=64, nullable=True),
        _field(9, "flag", DataType.BOOL, nullable=True),
        _field(10, "meta", DataType.JSON, nullable=True),
        _field(11, "$meta", DataType.JSON, is_dynamic=True),
        *(
            _field(
                20 + number,
                name,
                DataType.ARRAY,
                element_type=element_type,
                max_capacity=8,
                max_length=64 if element_type is DataType.VARCHAR else 0,
                nullable=True,
            )
            for number, (name, element_type) in enumerate(
                (ARRAYS | {f"clips[{name}]": member for name, member in MEMBERS.items()}).items()
            )
        ),
    ),
    enable_dynamic=True,
    structs=(StructSchema(FieldID(30), "clips", nullable=True),),
)


def single(number: float) -> float:
    """The number as a field of type Float holds it."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def whole(random: Random, bits: int = 64) -> int:
    limit = 1 << (bits - 1)
    edges = (limit - 1, -limit, -limit, limit - 2, random.randrange(-limit, limit))
    number = random.choice((*_WHOLE, *_WHOLE, *_EDGES, *edges))
    return number if -limit <= number < limit else random.choice(_WHOLE)


def fraction(random: Random) -> float:
    return random.choice((*_FRACTIONS, float(random.randrange(-8, 8)) / 2, random.uniform(-9, 9)))


def word(random: Random) -> str:
    return random.choice(WORDS)


def json_value(random: Random, depth: int = 2) -> Any:
    kinds = "nnnsbx" + ("lld" if depth else "")
    match random.choice(kinds):
        case "n" if random.random() < 0.6:
            return whole(random)
        case "n":
            number = fraction(random)
            return number if math.isfinite(number) else 0.5
        case "s":
            return word(random)
        case "b":
            return random.random() < 0.5
        case "l":
            return [json_value(random, depth - 1) for _ in range(random.randrange(4))]
        case "d":
            return json_object(random, depth - 1)
        case _:
            return None


def json_object(random: Random, depth: int = 2) -> dict[str, Any]:
    return {key: json_value(random, depth) for key in ("a", "b", "l", "0") if random.random() < 0.6}


def element(random: Random, data_type: DataType) -> Any:
    match data_type:
        case DataType.INT8:
            return whole(random, 8)
        case DataType.INT64:
            return whole(random)
        case DataType.FLOAT:
            return single(fraction(random))
        case DataType.DOUBLE:
            return fraction(random)
        case DataType.VARCHAR:
            return word(random)
        case _:
            return random.random() < 0.5


def _row(random: Random) -> Row:
    row: Row = {name: whole(random, bits) for name, bits in INTEGERS.items()}
    row |= {"price": fraction(random), "score": single(fraction(random))}
    row |= {"color": word(random), "name": word(random), "flag": random.random() < 0.5}
    row["meta"] = json_object(random) if random.random() < 0.8 else json_value(random)
    for name, data_type in ARRAYS.items():
        row[name] = [element(random, data_type) for _ in range(random.randrange(5))]
    clips = [{name: element(random, of) for name, of in MEMBERS.items()} for _ in range(random.randrange(4))]
    row["clips"] = clips
    row = {name: value if name == "id" or random.random() < 0.85 else None for name, value in row.items()}
    for name in MEMBERS:
        row[f"clips[{name}]"] = None if row["clips"] is None else [clip[name] for clip in clips]
    return row | {"$meta": json_object(random)}


def random_rows(random: Random, count: int) -> list[Row]:
    return [_row(random) for _ in range(count)]


def columns_of(rows: list[Row]) -> dict[str, pa.Array]:
    """The rows as columns in the schema's Arrow types."""
    columns = {}
    for field in SCHEMA.scalar_fields:
        values = [row[field.name] for row in rows]
        if field.data_type is DataType.JSON:
            values = [None if row is None else json.dumps(row) for row in values]
        columns[field.name] = pa.array(values, field.arrow_type)
    return columns
