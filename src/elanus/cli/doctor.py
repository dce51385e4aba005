"""`elanus doctor`: the findings about a status, as text or JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.text import Text

from elanus.cli.columns import show
from elanus.cli.remote import NoAnswer
from elanus.server.doctor import RULES, Finding, Severity, diagnose
from elanus.server.status import Status

_STYLES = {Severity.CRITICAL: "red", Severity.WARNING: "yellow"}


def findings_in(answer: bytes) -> list[Finding]:
    """Return what the rules find in a ``/status`` answer. Raises `NoAnswer` if it has another form."""
    try:
        return diagnose(msgspec.json.decode(answer, type=Status))
    except msgspec.DecodeError as error:
        raise NoAnswer(f"the answer is not a status of this release: {error}") from None


def show_findings(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print each finding with its evidence and remedy, or that there is none."""
    console = console or Console()
    if not findings:
        show(console, f"nothing found by {len(RULES)} rules")
    for one in findings:
        text = Text(f"{one.severity.value}: {one.finding} ({one.rule})", _STYLES[one.severity])
        for label, value in (("evidence", one.evidence), ("remedy", one.remedy), ("since", one.since)):
            if value:
                text.append(f"\n  {label}: {value}", "default")
        show(console, text)
