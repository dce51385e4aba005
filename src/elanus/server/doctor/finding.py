"""A finding of `elanus doctor`, and the small helpers that the rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from elanus.server.status import Status

_SHOWN = 3
"""Names given as evidence. The rest is a count: the status has them all."""


class Severity(StrEnum):
    """``critical``: something does not work or soon will not. ``warning``: it should not be left."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    ``finding``: a sentence. ``evidence``: the figures of the status that show it. ``remedy``: what to do.
    ``since``: ISO 8601 in UTC, "" where the status does not say. ``rule``: the rule's name, which
    `diagnose` fills in.
    """

    severity: Severity
    finding: str
    evidence: str
    remedy: str
    since: str = ""
    rule: str = ""


Rule = Callable[[Status], Iterator[Finding]]
"""A pure function. Its name and docstring are the rule's heading and text in ``docs/doctor.md``."""


def critical(finding: str, evidence: str, remedy: str, since: str = "") -> Finding:
    return Finding(Severity.CRITICAL, finding, evidence, remedy, since)


def warning(finding: str, evidence: str, remedy: str, since: str = "") -> Finding:
    return Finding(Severity.WARNING, finding, evidence, remedy, since)


def some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def mb(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MB"
