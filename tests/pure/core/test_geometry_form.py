"""Geometries that the library must not read: nested without end, curved, or without finite coordinates."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.geometry import InvalidGeometry, parse_wkt, texts_of, wkb_of_binaries, wkb_of_texts
from elanus.core.geometry_form import LEVELS_MAX, fault_of_binary

POINT = struct.pack("<BIdd", 1, 1, 3.0, 4.0)
LINE = struct.pack(">BII4d", 0, 2, 2, 0, 0, 1, 1)
SQUARE = struct.pack("<BIII8d", 1, 3, 1, 4, 0, 0, 1, 0, 1, 1, 0, 0)
CURVE = struct.pack("<BII6d", 1, 8, 3, 0, 0, 1, 1, 2, 0)
SURFACES = "CURVEPOLYGON ((0 0, 1 1, 1 0, 0 0))"


def nested(levels: int, inner: str = "POINT (1 1)") -> str:
    return "GEOMETRYCOLLECTION (" * levels + inner + ")" * levels


def collection(*parts: bytes, kind: int = 7) -> bytes:
    return struct.pack("<BII", 1, kind, len(parts)) + b"".join(parts)


def nested_binary(levels: int, kind: int = 7) -> bytes:
    return struct.pack("<BII", 1, kind, 1) * levels + POINT


def refused_text(texts: Sequence[str]) -> InvalidGeometry:
    with pytest.raises(InvalidGeometry) as caught:
        wkb_of_texts(pa.array(texts))
    with pytest.raises(InvalidParameter, match="invalid geometry WKT"):
        parse_wkt(texts[caught.value.row])
    return caught.value


def refused_binary(*binaries: bytes) -> InvalidGeometry:
    with pytest.raises(InvalidGeometry) as caught:
        wkb_of_binaries(pa.array(binaries, pa.binary()))
    return caught.value


@pytest.mark.parametrize("levels", [LEVELS_MAX, 200_000])
def test_a_geometry_of_too_many_levels_is_refused_before_the_library_reads_it(levels: int) -> None:
    error = refused_text(["POINT (0 0)", nested(levels)])
    assert error.row == 1
    assert "nested too deeply: at most 250 levels" in str(error)
    for kind in (4, 6, 7, 1007, 0x80000007):
        error = refused_binary(POINT, nested_binary(levels, kind))
        assert (error.row, "nested too deeply" in str(error)) == (1, True)


def test_geometries_of_the_most_levels_are_read() -> None:
    text = nested(LEVELS_MAX - 1)
    column = wkb_of_texts(pa.array([text]))
    assert texts_of(column).to_pylist() == [text]
    assert wkb_of_binaries(column).equals(column)


def test_many_parts_next_to_each_other_are_not_nested() -> None:
    points = ", ".join(f"({n} {n})" for n in range(2 * LEVELS_MAX))
    assert len(wkb_of_texts(pa.array([f"MULTIPOINT ({points})"]))) == 1
    parts = [collection(POINT, LINE), SQUARE, collection(), LINE] * LEVELS_MAX
    assert fault_of_binary(collection(*parts)) is None
    assert fault_of_binary(collection(*parts, nested_binary(LEVELS_MAX))) is not None


@pytest.mark.parametrize("text", ["CIRCULARSTRING (0 0, 1 1, 2 0)", SURFACES])
def test_curves_are_refused_wherever_they_are(text: str) -> None:
    for curved in (text, nested(1, f"POINT (0 0), {text}"), nested(3, text)):
        error = refused_text(["POINT (0 0)", curved, "POINT (1 1)"])
        assert error.row == 1
        assert "curves are not supported: use lines and polygons" in str(error)
    for binary in (CURVE, collection(POINT, SQUARE, LINE, CURVE)):
        assert "curves are not supported" in str(refused_binary(binary))


@pytest.mark.parametrize(
    "text", ["POINT (nan nan)", "POLYGON ((0 0, inf 1, 1 1, 0 0))", "LINESTRING (0 0, 1 -inf)"]
)
def test_coordinates_that_are_not_finite_are_refused(text: str) -> None:
    error = refused_text(["POINT (0 0)", text])
    assert error.row == 1
    assert "are not finite" in str(error)


def test_binaries_with_coordinates_that_are_not_finite_are_refused() -> None:
    error = refused_binary(POINT, struct.pack("<BIdd", 1, 1, 3.0, float("inf")))
    assert (error.row, str(error)) == (1, "invalid geometry WKB: the coordinates 3 inf are not finite")


def test_empty_geometries_have_no_coordinates_to_refuse() -> None:
    texts = ["POINT EMPTY", "POLYGON EMPTY", "GEOMETRYCOLLECTION EMPTY"]
    column = wkb_of_texts(pa.array(texts))
    assert texts_of(wkb_of_binaries(column)).to_pylist() == texts


@pytest.mark.parametrize(
    "binary", [b"", b"\x01", b"\x01\x07\x00", collection(POINT)[:-1], POINT[:7], b"x" * 40]
)
def test_bytes_that_are_no_geometry_are_left_to_the_library(binary: bytes) -> None:
    assert fault_of_binary(binary) is None
    assert "the bytes are no geometry" in str(refused_binary(binary))
