"""The commands `elanus jobs`: the job ledger, the history of a job, its cancellation."""

from __future__ import annotations

from typing import Annotated

import typer

from elanus.cli.options import EXIT_FAILED, DataDir, Url, Wide, fail, observe_url

jobs_app = typer.Typer(invoke_without_command=True)


@jobs_app.callback()
def jobs(
    context: typer.Context,
    data_dir: DataDir = None,
    url: Url = None,
    latest: Annotated[int, typer.Option(min=1, help="How many jobs to show, the latest.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON, one list.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep showing new jobs until interrupted.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Show the job ledger: the latest jobs and how they ended. --wide adds why they ran."""
    if context.invoked_subcommand is not None:
        return
    from elanus.cli import jobs, remote

    base_url = observe_url(data_dir, url)
    try:
        if as_json:
            import msgspec

            typer.echo(msgspec.json.encode(jobs.jobs_at(base_url)[-latest:]).decode())
        elif follow:
            jobs.follow(base_url, latest, wide=wide)
        else:
            jobs.show(jobs.jobs_at(base_url)[-latest:], wide=wide)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        raise typer.Exit from None


@jobs_app.command("show")
def show_job(
    job: Annotated[str, typer.Argument(help="The job's id, from `elanus jobs`.")],
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """Show the history of one job: why, what it read and wrote, how it ended."""
    from elanus.cli import jobs, remote

    try:
        jobs.show_one(observe_url(data_dir, url), job)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)


@jobs_app.command("cancel")
def cancel_job(
    job: Annotated[str, typer.Argument(help="The job's id, from `elanus jobs`.")],
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """End a job that waits or runs, with what it stands for: an index build leaves its index failed."""
    from elanus.cli import remote

    try:
        remote.cancel_job(observe_url(data_dir, url, changes=True), job)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    typer.echo(f"{job} cancelled")
