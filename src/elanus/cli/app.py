"""The commands of ``elanus``, under the headings of its help. Their arguments are in ``*_commands`` modules.

A command imports what it needs when it runs: `elanus serve` answers clients within seconds, and
`elanus status` has no reason to load a gRPC server. Wrong settings end a command with exit code 2, a
server that cannot start or be reached with exit code 1; both print one or two lines, without a
traceback.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from elanus.cli.backup_commands import backup, restore, verify
from elanus.cli.development_commands import demo, dev_cluster, docs, init, sim
from elanus.cli.diagnosis_commands import doctor, estimate
from elanus.cli.explain_commands import explain, slow
from elanus.cli.import_commands import import_
from elanus.cli.job_commands import jobs_app
from elanus.cli.key_commands import keys_app
from elanus.cli.operating_commands import gc, restart_role, status
from elanus.cli.serve_commands import pipeline, run, serve, serving, settings
from elanus.cli.share_port import share_port
from elanus.cli.snapshot_commands import clone, snapshot_app, undrop


class _Commands(TyperGroup):
    """Commands of which those that people do not start are no suggestion for a misspelled one."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._hidden = {name: command for name, command in self.commands.items() if command.hidden}
        self.commands = {name: c for name, c in self.commands.items() if name not in self._hidden}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._hidden.get(cmd_name)


app = typer.Typer(
    name="elanus",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tls_app = typer.Typer(no_args_is_help=True)

RUN, INSPECT = "Run a server", "Inspect a server"
OPERATE, DATA, DEVELOP = "Operate a server", "Move and keep data", "Develop"
"""The headings of `elanus --help`, in the order of the commands below."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from elanus import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def elanus(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """The Milvus 2.0 vector database in Python, its data pipeline on Spark."""


def version() -> None:
    """Print the version, as `elanus --version` does."""
    _print_version(True)


app.command(rich_help_panel=RUN)(serve)
app.command(rich_help_panel=RUN)(run)
app.command(rich_help_panel=INSPECT)(status)
app.command(rich_help_panel=INSPECT)(doctor)
app.command(rich_help_panel=INSPECT)(explain)
app.command(rich_help_panel=INSPECT)(slow)
app.command(rich_help_panel=INSPECT)(estimate)
app.command(rich_help_panel=OPERATE)(share_port)
app.command("restart-role", rich_help_panel=OPERATE)(restart_role)
app.command("import", rich_help_panel=DATA)(import_)
app.command(rich_help_panel=OPERATE)(gc)
app.command(rich_help_panel=DATA)(backup)
app.command(rich_help_panel=DATA)(restore)
app.command(rich_help_panel=OPERATE)(verify)
app.command(rich_help_panel=DATA)(clone)
app.command(rich_help_panel=DATA)(undrop)
app.command(rich_help_panel=RUN)(demo)
app.command(rich_help_panel=DEVELOP)(sim)
app.command("dev-cluster", rich_help_panel=RUN)(dev_cluster)
app.command(rich_help_panel=RUN)(settings)
app.command(rich_help_panel=RUN)(version)
app.command(hidden=True)(pipeline)
app.command(hidden=True)(serving)
app.command(hidden=True)(docs)

app.add_typer(jobs_app, name="jobs", rich_help_panel=INSPECT)
app.add_typer(
    keys_app,
    name="keys",
    help="Manage API keys, with which programs sign in as a user.",
    rich_help_panel=OPERATE,
)
app.add_typer(
    snapshot_app, name="snapshot", help="Manage named snapshots of collections.", rich_help_panel=DATA
)
app.add_typer(tls_app, name="tls", help="Make certificates for development.", rich_help_panel=DEVELOP)
tls_app.command()(init)
