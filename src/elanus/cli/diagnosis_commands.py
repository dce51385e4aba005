"""The commands that change nothing: `elanus doctor` and `elanus estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elanus.cli.options import (
    EXIT_FAILED,
    EXIT_FOUND,
    EXIT_MISUSED,
    Config,
    DataDir,
    Set,
    Url,
    effective_settings,
    fail,
    named_values,
    observe_url,
)


def doctor(
    data_dir: DataDir = None,
    url: Url = None,
    status_file: Annotated[
        Path | None,
        typer.Option(
            "--status", help="Check the status in this file, from `elanus status --json`.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, one list.")] = False,
) -> None:
    """Check a running server for problems, and show how to fix them (docs/doctor.md).

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


def estimate(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the collection.")],
    dim: Annotated[int, typer.Option(help="The dimension; not for sparse vectors.", show_default=False)] = 0,
    index: Annotated[str, typer.Option(help="The index type (docs/index-types.md).")] = "AUTOINDEX",
    type_name: Annotated[str, typer.Option("--type", help="The vector field's type.")] = "FLOAT_VECTOR",
    metric: Annotated[str, typer.Option(help="Default: the type's own.", show_default=False)] = "",
    params: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the index. May be repeated."),
    ] = None,
    values: Annotated[
        float, typer.Option(min=0, help="Values of a sparse vector that are not zero.", show_default=False)
    ] = 0.0,
    other_bytes: Annotated[
        int, typer.Option(min=0, help="Bytes of a row's other fields, the primary key included.")
    ] = 8,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas that are loaded.")] = 1,
    data_dir: DataDir = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals in bytes as JSON.")] = False,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Estimate the memory, disk and build time of a collection before it exists (docs/estimate.md).

    No server is needed. If one is named, the build time is that of its past builds.
    """
    from elanus.cli import remote
    from elanus.cli.estimate import at_speed, past_builds, show_estimate
    from elanus.core.build_speed import build_speed
    from elanus.core.errors import ElanusError
    from elanus.index.estimate import Plan, planned_index
    from elanus.index.estimate import estimate as estimate_of

    settings = effective_settings(config, {}, assignments)
    segments = settings.datacoord
    sent = named_values("--param", params)
    plan = Plan(
        rows,
        int(segments.segment_size_max_mb * segments.seal_proportion) << 20,
        other_bytes,
        values,
        replicas,
        settings.indexcoord.index_rows_min,
    )
    try:
        spec = planned_index(index, type_name, dim, metric, sent)
        found = estimate_of(spec, plan)
    except ElanusError as error:
        fail(error.message, EXIT_MISUSED)
    try:
        is_asked = bool(data_dir or url)
        past = past_builds(observe_url(data_dir, url)) if is_asked else ()
        speed, builds = build_speed(past, spec.index_type)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    found = at_speed(found, speed)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(found).decode())
    else:
        show_estimate(spec, found, replicas, builds if is_asked else None)
