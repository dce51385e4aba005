"""The options of an import, as clients give them: names and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from elanus.core.errors import InvalidParameter
from elanus.core.imports import COMMAS, CsvFormat, Duplicates, WriteMode
from elanus.core.limits import IMPORT_REJECTS_MAX, WRITE_ID_LENGTH_MAX
from elanus.proxy.api.imports import ImportOptions
from elanus.proxy.wire.unsupported import unsupported

KEY, ON_ERROR, REJECTS = "idempotency_key", "on_error", "max_rejects"
MODE, DUPLICATES = "mode", "duplicates"
FAIL, REJECT = "fail", "reject"
SEPARATOR, NULL = "sep", "nullkey"
TIMEOUT = "timeout"
COMMITS = "auto_commit"
INSERT, UPSERT = "insert", "upsert"
REJECTS_DEFAULT = 1000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_YES, _NO = ("1", "t", "true"), ("0", "f", "false")
_NO_SEPARATORS = '\0\r\n"'


def import_options(given: Mapping[str, str]) -> ImportOptions:
    """The idempotency key is the id of the write: one import is made for it, however often it is asked for.

    Raises `InvalidParameter`, and `NotSupported` for an option that is not known.
    """
    for name in given:
        if name not in (KEY, ON_ERROR, REJECTS, MODE, DUPLICATES, SEPARATOR, NULL, TIMEOUT, COMMITS):
            raise unsupported(f"the option {name} of Import", "leave it out")
    commits = _commits(given.get(COMMITS, "true"))
    key = given.get(KEY, "")
    if KEY in given:
        check_key(KEY, key)
    on_error = given.get(ON_ERROR, FAIL)
    if on_error not in (FAIL, REJECT):
        raise InvalidParameter(f"{ON_ERROR} is {on_error!r}: give {FAIL} or {REJECT}")
    if on_error == FAIL:
        if REJECTS in given:
            raise InvalidParameter(f"{REJECTS} needs {ON_ERROR}={REJECT}: else the first row fails all")
        rejects_max = 0
    else:
        rejects_max = _rejects_max(given.get(REJECTS, str(REJECTS_DEFAULT)))
    return ImportOptions(
        key, rejects_max, *_mode(given), _csv(given), _timeout_ms(given), auto_commit=commits
    )


def _commits(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise InvalidParameter(f"{COMMITS} is {text!r}: give true or false")
    return text.lower() in _YES


def _timeout_ms(given: Mapping[str, str]) -> int:
    if TIMEOUT not in given:
        return 0
    text = given[TIMEOUT]
    parts = _DURATION.findall(text)
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or total < 1:
        raise InvalidParameter(
            f"parse timeout failed: {TIMEOUT} is {text!r}: give a duration such as 300s or 1.5h"
        )
    return int(total)


def _mode(given: Mapping[str, str]) -> tuple[WriteMode, Duplicates]:
    name = given.get(MODE, INSERT)
    if name not in (INSERT, UPSERT):
        raise InvalidParameter(f"{MODE} is {name!r}: give {INSERT} or {UPSERT}")
    default = Duplicates.KEEP if name == INSERT else Duplicates.REJECT
    rule = given.get(DUPLICATES, default.value)
    if rule not in list(Duplicates):
        raise InvalidParameter(f"{DUPLICATES} is {rule!r}: give {', '.join(Duplicates)}")
    duplicates = Duplicates(rule)
    if name == UPSERT and duplicates is Duplicates.KEEP:
        raise InvalidParameter(
            f"{DUPLICATES} is {rule!r}, but an upsert leaves one row of a key: give first, last or reject"
        )
    # The last row of a key stays: a row that there is already goes, as in an upsert.
    is_upsert = name == UPSERT or duplicates is Duplicates.LAST
    return WriteMode.UPSERT if is_upsert else WriteMode.APPEND, duplicates


def _csv(given: Mapping[str, str]) -> CsvFormat:
    separator, null = given.get(SEPARATOR, COMMAS.separator), given.get(NULL, COMMAS.null)
    if len(separator) != 1 or not separator.isascii() or separator in _NO_SEPARATORS:
        raise InvalidParameter(
            f"unsupported csv separator: {SEPARATOR} is {separator!r}: give one ASCII character that is no "
            'quote ("), end of a line, or NUL'
        )
    return CsvFormat(separator, null)


def check_key(name: str, key: str) -> None:
    """Raises `InvalidParameter` for a key that is empty or too long."""
    if not 0 < len(key) <= WRITE_ID_LENGTH_MAX:
        raise InvalidParameter(f"{name} has {len(key)} characters: give 1 to {WRITE_ID_LENGTH_MAX}")


def _rejects_max(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= IMPORT_REJECTS_MAX:
        raise InvalidParameter(f"{REJECTS} is {text!r}: give a number from 1 to {IMPORT_REJECTS_MAX}")
    return number
