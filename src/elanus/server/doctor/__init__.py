"""`elanus doctor`: rules over one status of a server that find what is wrong, and say what to do.

A rule is a pure function from a `elanus.server.status.Status` to findings. Rules never ask the server for
more, so a diagnosis costs one `/status`, and a saved status gives the same diagnosis later. They know nothing
that the status lacks, such as what happened before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from elanus.server.doctor import channels, collections, jobs, resources, roles
from elanus.server.doctor.finding import Finding, Rule, Severity
from elanus.server.status import Status

RULES: tuple[Rule, ...] = (*roles.RULES, *channels.RULES, *collections.RULES, *jobs.RULES, *resources.RULES)

__all__ = ["Finding", "Severity", "diagnose", "markdown", "name_of"]


def diagnose(status: Status) -> list[Finding]:
    """Return what the rules find, the critical findings first."""
    found = [replace(one, rule=name_of(rule)) for rule in RULES for one in rule(status)]
    return sorted(found, key=lambda one: one.severity is not Severity.CRITICAL)


def name_of(rule: Rule) -> str:
    """Return the name of a rule as findings and the page show it."""
    return rule.__name__.replace("_", "-")


_INTRODUCTION = """\
# elanus doctor

<!-- Written by `make docs` from `src/elanus/server/doctor`: edit that, not this page. -->

`elanus doctor` looks at one status of a running server (what `elanus status` shows) and lists what is
wrong, each with the figures that show it and what to do. With `--json` the findings are a list of objects
with the keys `severity`, `finding`, `evidence`, `remedy`, `since` and `rule`; `since` is empty where the
status does not say. The exit code is 0 if nothing was found, 3 if something was, and 1 if no server answers.

```text
$ elanus doctor
warning: the pipeline is switched off, so rows stay in the log and in memory (pipeline-down)
  evidence: pipeline.enabled is false
  remedy: set pipeline.enabled to true and restart the server
```

`elanus status --json > status.json` keeps a status; `elanus doctor --status status.json` looks at it later.

Memory, disk, open files, certificates and passwords are those of the process that answers: in a cluster, ask
each process with `--url`. The expiry of certificates is known if the extra `tls` is installed.

## Rules
"""


def markdown() -> str:
    """The page of the rules, ``docs/doctor.md``."""
    return _INTRODUCTION + "".join(_entries())


def _entries() -> Iterator[str]:
    for rule in RULES:
        yield f"\n### {name_of(rule)}\n\n{' '.join((rule.__doc__ or '').split())}\n"
