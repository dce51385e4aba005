"""Moments of Timestamptz fields: ISO 8601 texts in and out, microseconds since 1970 in UTC inside.

A text without an offset is a local time of a time zone: that of the request, else the collection's property
``timezone``, else UTC. Answers show moments in that zone, too. Rows hold ``int64``, so comparisons and
statistics need no knowledge of zones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elanus.core.errors import InvalidParameter

Moments = npt.NDArray[np.int64]
"""Microseconds since 1970 in UTC: shape (n,)."""

TIMEZONE = "timezone"
"""The property of collections and databases, and the parameter of reads."""
DEFAULT_TIMEZONE = "UTC"
TIME_FIELDS = "time_fields"
"""The parameter of reads that asks for parts of moments."""
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_MICROS_OF_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": None}
"""The microseconds in the units of Arrow's timestamps; all nanoseconds of 64 bits are in the calendar."""
_MONTHS_MAX, _DAY_MICROS = 12 * 9_999, 86_400_000_000
_MONTHS_OF_CALENDAR = 12 * 400
_OFFSET_MAX, _OFFSET_MIN = timedelta(hours=14), timedelta(hours=-12)
_TEXT = re.compile(
    r"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d|[+-]\d\d)?", re.ASCII
)
_PLAIN = (
    r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
    r"(Z|\+(0\d|1[0-3]):[0-5]\d|\+14:00|-(0\d|1[01]):[0-5]\d|-12:00)$"
)
"""Texts with an offset that Arrow parses as `parse_moment` does, except for their dates."""


@lru_cache(maxsize=256)
def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of that name. Raises `InvalidParameter`."""
    try:
        if not name:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise InvalidParameter(f"unknown or invalid IANA Time Zone ID: {name}") from None


def check_timezone(properties: Mapping[str, str]) -> None:
    """Check the property ``timezone``, if there is one. Raises `InvalidParameter`."""
    if TIMEZONE in properties:
        time_zone(properties[TIMEZONE])


def parse_moment(text: str, zone: str = DEFAULT_TIMEZONE) -> int:
    """Return the moment in microseconds since 1970, rounded down.

    ``zone``: of a text without an offset. Raises `InvalidParameter`.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise _unknown(text)
    day, separator, time, fraction, offset = found.groups()
    if offset is not None and len(offset) == 3:
        if separator == "T":
            raise _unknown(text)
        offset += ":00"
    try:
        local = datetime.fromisoformat(f"{day}T{time}{offset or ''}")
    except ValueError:
        raise _unknown(text) from None
    if local.tzinfo is None:
        local = local.replace(tzinfo=time_zone(zone))
    else:
        _check_offset(local)
    micros = int((fraction or "").ljust(6, "0")[:6])
    moment = (local - _EPOCH) // _MICROSECOND + micros
    if not _FIRST <= moment <= _LAST:
        raise _unknown(text)
    return moment


def _unknown(text: str) -> InvalidParameter:
    return InvalidParameter(f"invalid timestamp string: '{text}'. Does not match any known format")


def _check_offset(local: datetime) -> None:
    offset = local.utcoffset()
    assert offset is not None
    if not _OFFSET_MIN <= offset <= _OFFSET_MAX:
        hours = int(offset / timedelta(hours=1))
        raise InvalidParameter(f"UTC offset hour {hours} is out of the valid range [-12, 14]")


class InvalidMoment(ValueError):
    """A text of a column that is no moment. ``row``: its place in the column."""

    def __init__(self, row: int, text: str, why: str) -> None:
        super().__init__(f"got invalid timestamptz string '{text}': {why}")
        self.row = row


def parse_moments(texts: pa.Array, zone: str = DEFAULT_TIMEZONE) -> pa.Array:
    """Return the moments of a column of texts without nulls, as ``int64``. Raises `InvalidMoment`."""
    if pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py() is not False:
        try:
            parsed = texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        except pa.ArrowInvalid:
            parsed = None  # a date that does not exist: found below
        if parsed is not None and (not len(parsed) or _in_calendar(parsed)):
            return parsed
    moments = np.empty(len(texts), dtype=np.int64)
    for row, text in enumerate(texts.to_pylist()):
        try:
            moments[row] = parse_moment(text, zone)
        except InvalidParameter as error:
            raise InvalidMoment(row, text, error.message) from None
    return pa.array(moments)


def first_beyond_calendar(numbers: pa.Array, unit: str) -> int | None:
    """Return the place of the first moment that is not in the years 1 to 9999, which no answer could show.

    ``numbers``: since 1970 in the unit of an Arrow timestamp: int64.
    """
    micros = _MICROS_OF_UNIT[unit]
    if micros is None:
        return None
    outside = pc.or_(pc.less(numbers, -(-_FIRST // micros)), pc.greater(numbers, _LAST // micros))
    place = pc.index(outside, True).as_py()
    return None if place < 0 else int(place)


def _in_calendar(moments: pa.Array) -> bool:
    bounds = pc.min_max(moments).as_py()
    return bool(bounds["min"] >= _FIRST and bounds["max"] <= _LAST)


def format_moment(micros: int, zone: str = DEFAULT_TIMEZONE) -> str:
    """Return the moment as the reference writes it: local time, shortest fraction, offset or ``Z``."""
    local = _local(micros, time_zone(zone))
    text = local.replace(microsecond=0, tzinfo=None).isoformat()
    if local.microsecond:
        text += f".{local.microsecond:06d}".rstrip("0")
    offset = local.utcoffset()
    assert offset is not None
    if not offset:
        return text + "Z"
    minutes = int(abs(offset).total_seconds()) // 60
    return f"{text}{'-' if offset < timedelta(0) else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _local(micros: int, zone: ZoneInfo) -> datetime:
    moment = _EPOCH + timedelta(microseconds=micros)
    try:
        return moment.astimezone(zone)
    except OverflowError:  # at the first or last day of the calendar
        return moment


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How an answer shows moments: as texts of a zone, or as lists of ``parts`` (of local time)."""

    zone: str = DEFAULT_TIMEZONE
    parts: tuple[str, ...] = ()

    def texts(self, column: pa.Array) -> pa.Array:
        """Return moments as texts, nulls as nulls."""
        values = column.to_pylist()
        return pa.array([None if v is None else format_moment(v, self.zone) for v in values], pa.string())

    def lists(self, column: pa.Array) -> pa.Array:
        """Return moments as lists of their parts, nulls as nulls."""
        zone = time_zone(self.zone)
        values = column.to_pylist()
        return pa.array([None if v is None else self._parts(v, zone) for v in values], pa.list_(pa.int64()))

    def _parts(self, micros: int, zone: ZoneInfo) -> list[int]:
        local = _local(micros, zone)
        return [getattr(local, part) for part in self.parts]


IN_UTC = TimeFormat()


def time_format(zone: str, parts: str) -> TimeFormat:
    """Return the format of a request. ``parts``: names with commas or blanks between them.

    Raises `InvalidParameter` for a zone or a part that does not exist.
    """
    time_zone(zone)
    names = tuple(re.split(r"[,\s]+", parts.strip())) if parts.strip(", ") else ()
    for name in names:
        if name not in _PARTS:
            raise InvalidParameter(f"unsupported time field: {name}: {TIME_FIELDS} are {', '.join(_PARTS)}")
    return TimeFormat(zone, names)


@dataclass(frozen=True, slots=True)
class Interval:
    """A duration: whole months of the calendar, and microseconds. Days have 24 hours.

    Raises `ValueError` for one that is longer than the calendar.
    """

    months: int
    micros: int

    def __post_init__(self) -> None:
        if abs(self.months) > _MONTHS_MAX or abs(self.micros) > _LAST - _FIRST:
            raise ValueError(f"the interval is longer than {_MONTHS_MAX // 12} years")

    def __str__(self) -> str:
        """The ISO 8601 duration of an interval without negative parts."""
        days, micros = divmod(self.micros, _DAY_MICROS)
        return f"P{self.months}M{days}DT{micros // 1_000_000}.{micros % 1_000_000:06d}S"

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.months + other.months, self.micros + other.micros)

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.micros)

    @property
    def lengths(self) -> tuple[int, int]:
        """The microseconds of the shortest and of the longest such interval, wherever it begins."""
        # Negative intervals of months have negative lengths. The calendar repeats after 400 years.
        begins = np.arange(_MONTHS_OF_CALENDAR).astype("M8[M]")
        days = (begins + self.months).astype("M8[D]") - begins.astype("M8[D]")
        shortest, longest = (int(days.min().astype(int)), int(days.max().astype(int)))
        return shortest * _DAY_MICROS + self.micros, longest * _DAY_MICROS + self.micros

    def after(self, moments: Moments) -> Moments:
        """Return the moments that are this much later, int64 (n,).

        Months keep the day and the time in UTC. A day that the month does not have counts on into the next.
        """
        given = moments.view("M8[us]")
        if self.months:
            months = given.astype("M8[M]")
            given = (months + self.months).astype("M8[us]") + (given - months.astype("M8[us]"))
        later: Moments = given.view(np.int64) + self.micros
        return later


_DURATION = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?",
    re.ASCII,
)
_MICROS = (7 * _DAY_MICROS, _DAY_MICROS, 3_600_000_000, 60_000_000, 1_000_000)
_INTERVAL_DIGITS_MAX = 9


def parse_interval(text: str) -> Interval:
    """Return an ISO 8601 duration: ``P1Y2M3DT4H5M6S``. Raises `ValueError` for anything else."""
    found = _DURATION.fullmatch(text)
    groups = found.groups() if found is not None else ()
    if not any(groups) or text.endswith("T") or any(len(g) > _INTERVAL_DIGITS_MAX for g in groups if g):
        raise ValueError(f"invalid interval string: '{text}'")
    years, months, *units, fraction = groups
    whole = sum(int(count or 0) * unit for count, unit in zip(units, _MICROS, strict=True))
    return Interval(int(years or 0) * 12 + int(months or 0), whole + int((fraction or "").ljust(6, "0")))


def is_moment(micros: int) -> bool:
    """Whether the calendar has this moment."""
    return _FIRST <= micros <= _LAST


def moment_literal(micros: int) -> str:
    """Return a moment in the filter language; one beyond the calendar as its end and an interval."""
    if is_moment(micros):
        return f"ISO '{format_moment(micros)}'"
    end, sign = (_LAST, "+") if micros > _LAST else (_FIRST, "-")
    return f"ISO '{format_moment(end)}' {sign} INTERVAL '{Interval(0, abs(micros - end))}'"


_LITERAL = re.compile(
    r"""\bISO\s*+(?P<iso>'[^'\\\n]*'|"[^"\\\n]*")|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)""",
    re.I | re.DOTALL,
)
"""The moments and the other texts of a filter. A text that is not closed ends with the filter: if another one
were looked for inside, each of its quotes would be a beginning that is read to the end."""


def with_offsets(filter_: str, zone: str) -> str:
    """Return the filter with local times, ``ISO '2025-01-01T00:00:00'``, written as moments in UTC.

    Texts that are no local times stay as they are: the filter language reports what is wrong with them.
    """
    if zone == DEFAULT_TIMEZONE or "iso" not in filter_.lower():
        return filter_

    def written(found: re.Match[str]) -> str:
        literal = found["iso"]
        if literal is None or (parsed := _TEXT.fullmatch(literal[1:-1])) is None or parsed[5] is not None:
            return found[0]
        try:
            return f"ISO '{format_moment(parse_moment(literal[1:-1], zone))}'"
        except InvalidParameter:
            return found[0]

    return _LITERAL.sub(written, filter_)
