"""The commands that look: `elanus doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elanus.cli.options import EXIT_FAILED, EXIT_FOUND, DataDir, Url, fail, observe_url


def doctor(
    data_dir: DataDir = None,
    url: Url = None,
    status_file: Annotated[
        Path | None,
        typer.Option(
            "--status", help="Look at a file that `elanus status --json` printed.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, one list.")] = False,
) -> None:
    """Look for what is wrong with a running server, and say what to do (docs/doctor.md).

    Exit code 3: something was found.
    """
    from elanus.cli import remote
    from elanus.cli.doctor import findings_in, show_findings

    try:
        if status_file is None:
            answer = remote.get(observe_url(data_dir, url) + "/status")
        else:
            answer = status_file.read_bytes()
        findings = findings_in(answer)
    except (remote.NoAnswer, OSError) as error:
        fail(str(error), EXIT_FAILED)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(findings).decode())
    else:
        show_findings(findings)
    if findings:
        raise typer.Exit(EXIT_FOUND)
