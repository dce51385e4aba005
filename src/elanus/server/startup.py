"""Why a server cannot start: the errors that end `elanus serve` with one line and exit code 1."""

from __future__ import annotations


class CannotStart(Exception):
    """Starting fails for a reason outside the program. The text says what to do about it."""


class PortTaken(CannotStart):
    """A port cannot be opened. The text names the setting to change."""
