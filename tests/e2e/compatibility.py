"""The compatibility page: what each client generation can do here, found out by running it.

Each client is installed from PyPI into an environment of its own (`environments`) and runs
`client_program` against a fresh server. `make compatibility` writes ``docs/compatibility.md`` from
what came of it, and a test compares the page with a new run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from environments import ROOT, python_environment
from harness import Server

from elanus.proxy.wire.tolerances import TOLERANCES

PAGE = ROOT / "docs" / "compatibility.md"
PROGRAM = Path(__file__).with_name("client_program.py")

CLIENTS: Mapping[str, tuple[str, ...]] = {
    "2.3.6": ("setuptools<70", "marshmallow<4", "numpy<2"),
    "2.6.17": (),
    "3.0.2": (),
}
"""Releases of pymilvus, and what else has to be installed with them."""

PROGRAM_TIMEOUT_S = 240.0

Outcomes = Mapping[str, Mapping[str, str]]
"""Section → title → outcome, as `client_program` prints them."""

INTRODUCTION = """\
# Compatibility

<!-- Written by `make compatibility` from runs of the clients: edit tests/e2e/client_program.py. -->

Features of Elanus for programs written for [pymilvus](https://pypi.org/project/pymilvus/). Every row
is a check in [client_program.py](../tests/e2e/client_program.py), run with each of these releases against
a server: it does the thing and compares the answer. A dash: that release of the client does not have it.

The server gives its version as v2.6.16, a Milvus release whose features it has, since programs choose theirs
by it. `get_server_version(detail=True)` names the release of Elanus as `git_commit`.
"""


PARAMETERS = """
## Parameters without effect, and in several places

Programs send parameters that no index reads, or one parameter in two places. This is what becomes of them.
Features that are missing are refused with what to do instead.

| parameters | where | here |
|---|---|---|
"""


def python_of(version: str) -> Path:
    """The Python of an environment with that client. It is made when it is not there yet."""
    return python_environment(version, f"pymilvus=={version}", *CLIENTS[version])


def outcomes_of(version: str, server: Server) -> Outcomes:
    """The outcome of the program with that client against an empty server."""
    # nothing of the environment the tests run in: the client has only its own packages
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python_of(version)), str(PROGRAM), server.uri],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["pymilvus"] == version
    outcomes: Outcomes = answer["outcomes"]
    return outcomes


def page(outcomes: Mapping[str, Outcomes]) -> str:
    """The page of these outcomes by client version."""
    parts = [INTRODUCTION]
    newest = list(outcomes)[-1]
    for section, rows in outcomes[newest].items():
        parts.append(f"\n## {section}\n\n| | {' | '.join(outcomes)} |\n|---|{'---|' * len(outcomes)}\n")
        for title in rows:
            cells = [cell(of_client[section][title]) for of_client in outcomes.values()]
            parts.append(f"| {title} | {' | '.join(cells)} |\n")
    return "".join((*parts, parameters()))


def parameters() -> str:
    """The end of the page, which does not depend on the clients."""
    rows = (f"| {row.parameters} | {row.where} | {row.treatment} |\n" for row in TOLERANCES)
    return "".join((PARAMETERS, *rows))


def columns(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """The cells of a page: client version → section → title → cell."""
    assert text.startswith(INTRODUCTION)
    assert text.endswith(parameters())
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in text.removeprefix(INTRODUCTION).removesuffix(parameters()).split("\n## ")[1:]:
        section, _, table = part.partition("\n\n")
        (_, *versions), _, *rows = (
            [cell.strip() for cell in line[1:-2].split("|")] for line in table.splitlines()
        )
        for number, version in enumerate(versions, 1):
            found.setdefault(version, {})[section] = {row[0]: row[number] for row in rows}
    return found


def cell(outcome: str) -> str:
    return {"yes": "yes", "absent": "–"}.get(outcome, "no")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory) / "data") as server:
        server.start().wait_for_spark()
        outcomes = {version: outcomes_of(version, server) for version in CLIENTS}
    for version, sections in outcomes.items():
        for section, rows in sections.items():
            for title, outcome in rows.items():
                if cell(outcome) == "no":
                    sys.stderr.write(f"{version}: {section}: {title}: {outcome}\n")
    PAGE.write_text(page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
