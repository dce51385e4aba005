"""What `client_program` goes through: types with values, indexes, filters; and how it keeps account."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

TYPES: Sequence[tuple[str, Sequence[Any], dict[str, Any]]] = (
    ("BOOL", [True, False, True], {}),
    ("INT8", [-128, 0, 127], {}),
    ("INT16", [-(2**15), 0, 2**15 - 1], {}),
    ("INT32", [-(2**31), 0, 2**31 - 1], {}),
    ("INT64", [-(2**63), 0, 2**63 - 1], {}),
    ("FLOAT", [-1.5, 0.0, 2.0**100], {}),
    ("DOUBLE", [-1.0e300, 0.1, 3.0], {}),
    ("VARCHAR", ["", "é 漢字", "x" * 50], {"max_length": 50}),
    ("JSON", [{"a": [1, {"b": None}]}, {"text": "é"}, {"n": 1.5, "yes": True}], {}),
)
"""A type, values that must come back as they are, and the field's options."""

INDEXES: Sequence[tuple[str, str, dict[str, Any], dict[str, Any]]] = (
    ("FLAT", "L2", {}, {}),
    ("FLAT", "IP", {}, {}),
    ("FLAT", "COSINE", {}, {}),
    ("IVF_FLAT", "L2", {"nlist": 16}, {"nprobe": 16}),
    ("IVF_SQ8", "L2", {"nlist": 16}, {"nprobe": 16}),
    ("HNSW", "L2", {"M": 8, "efConstruction": 64}, {"ef": 64}),
    ("HNSW", "IP", {"M": 8, "efConstruction": 64}, {"ef": 64}),
    ("HNSW", "COSINE", {"M": 8, "efConstruction": 64}, {"ef": 64}),
    ("AUTOINDEX", "COSINE", {}, {}),
    ("BIN_FLAT", "HAMMING", {}, {}),
    ("BIN_FLAT", "JACCARD", {}, {}),
    ("BIN_IVF_FLAT", "HAMMING", {"nlist": 16}, {"nprobe": 16}),
)
"""An index type, a metric, the parameters to build with and to search with."""

FILTERS: Sequence[tuple[str, Callable[[int], bool]]] = (
    ("n == -3", lambda row: row == 7),
    ("n != 0 and key < 12", lambda row: row != 10 and row < 12),
    ("-2 <= n < 4", lambda row: 8 <= row < 14),
    ("n in [1, 2, 99]", lambda row: row in (11, 12)),
    ("n not in [1, 2]", lambda row: row not in (11, 12)),
    ("not (b == true)", lambda row: row % 2 == 1),
    ("b == true or n > 7", lambda row: row % 2 == 0 or row > 17),
    ("n * 2 + 1 == 5", lambda row: row == 12),
    ("key % 4 == 1", lambda row: row % 4 == 1),
    ("f > 4.5", lambda row: row / 4 > 4.5),
    ('s like "s3%"', lambda row: row % 7 == 3),
    ('s >= "s6"', lambda row: row % 7 == 6),
    ('tone == "dark"', lambda row: row % 3 == 0),
    ('j["a"]["b"] >= 17', lambda row: row >= 17),
    ('j["list"][1] == 5', lambda row: row == 4),
)
"""A filter and which of twenty rows it matches."""


class Program:
    """The checks in their order, and what came of each."""

    def __init__(self) -> None:
        self.uri = ""
        self.names = 0
        self.outcomes: dict[str, dict[str, str]] = {}
        self._checks: list[tuple[str, str, bool, Callable[[], None]]] = []

    def check(
        self, section: str, title: str, *, needs: bool = True
    ) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Adds a check. ``needs``: whether the client has what it takes; no title: it runs several."""

        def add(function: Callable[[], None]) -> Callable[[], None]:
            self._checks.append((section, title, needs, function))
            return function

        return add

    def run_all(self) -> None:
        for section, title, needs, function in self._checks:
            if not needs:
                self.outcomes.setdefault(section, {})[title] = "absent"
            elif title:
                self.run(section, title, function)
            else:
                function()

    def run(self, section: str, title: str, function: Callable[[], None]) -> None:
        outcome = "yes"
        try:
            function()
        except Exception as error:  # noqa: BLE001 - whatever the client raises is the outcome
            (*_, place) = traceback.extract_tb(error.__traceback__)
            outcome = f"no: {type(error).__name__}: {error} ({place.line})"
        self.outcomes.setdefault(section, {})[title] = outcome
