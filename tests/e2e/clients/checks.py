"""Shared by the programs of this directory: checks that print their outcome, and vectors.

A program is run by the Python of a client's own environment, with the server's URI as its argument. Each
check prints one line of JSON: ``title``; ``kind``, which is ``works`` or ``lacks``; ``ok``; and ``detail``,
the error of a check that failed or the refusal of what the client lacks here.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

# the clients log each refusal with its traceback
logging.disable(logging.ERROR)

DIM = 8
VECTORS: list[list[float]] = np.random.default_rng(13).normal(size=(300, DIM)).round(4).tolist()
"""Row n of every collection has the n-th of these."""


def uri() -> str:
    """The address of the server, which the program was started with."""
    return sys.argv[1]


def report(title: str, kind: str, ok: bool, detail: str = "") -> None:
    print(json.dumps({"title": title, "kind": kind, "ok": ok, "detail": detail}), flush=True)  # noqa: T201


def check(title: str) -> Callable[[Callable[[], Any]], None]:
    """Runs the function at once: it does one thing the way a user would, and asserts what the answer is."""

    def run(function: Callable[[], Any]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - whatever the client raises is the outcome
            report(title, "works", False, described(error))
        else:
            report(title, "works", True)

    return run


def lacks(title: str, refusal: str) -> Callable[[Callable[[], Any]], None]:
    """Runs the function at once: the server must refuse it with an error that contains ``refusal``."""

    def run(function: Callable[[], Any]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - whatever the client raises is the outcome
            message = str(getattr(error, "message", error))
            expected = refusal in message
            report(title, "lacks", expected, message if expected else described(error))
        else:
            report(title, "lacks", False, "it is not refused: it is a check of what works now")

    return run


def described(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    (*_, place) = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno}: {place.line})"
