"""The commands of ``elanus``: their arguments, and the code that each one calls.

A command imports what it needs when it runs: `elanus serve` answers clients within seconds, and
`elanus status` has no reason to load a gRPC server. Wrong settings end a command with exit code 2, a
server that cannot start or be reached with exit code 1; both print one or two lines, without a
traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elanus.cli.backup_commands import backup, restore, verify
from elanus.cli.diagnosis import doctor, estimate
from elanus.cli.explanations import explain, slow
from elanus.cli.job_commands import jobs_app
from elanus.cli.key_commands import keys_app
from elanus.cli.options import (
    EXIT_FAILED,
    EXIT_MISUSED,
    Config,
    DataDir,
    ServerOptions,
    Set,
    Url,
    Wide,
    effective_settings,
    fail,
    observe_url,
    on_server,
)
from elanus.cli.share_port import share_port
from elanus.cli.snapshot_commands import clone, snapshot_app, undrop

if TYPE_CHECKING:
    from elanus.server.settings import Settings

Program = Callable[["Settings"], int]
"""Runs until it is interrupted, and returns the exit code."""

app = typer.Typer(
    name="elanus",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RUN, INSPECT = "Run a server", "Inspect a server"
OPERATE, DATA, DEVELOP = "Operate a server", "Move and keep data", "Develop"
"""The headings of `elanus --help`, in the order of the commands below."""

tls_app = typer.Typer(no_args_is_help=True)
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


@app.command(rich_help_panel=RUN)
def serve(
    data_dir: DataDir = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on (setting proxy.host).", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on (setting proxy.port).", show_default=False)
    ] = None,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Run the standalone server until it is interrupted."""
    named = {"data_dir": data_dir, "proxy.host": host, "proxy.port": port}

    def program() -> Program:
        from elanus.server.standalone import serve

        return serve

    _run_until_interrupted(program, config, named, assignments)


@app.command(rich_help_panel=RUN)
def run(
    roles: Annotated[
        list[str],
        typer.Argument(
            help="One or more of rootcoord, datacoord, indexcoord, querycoord, querynode, proxy; or datanode."
        ),
    ],
    data_dir: DataDir = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The address on which a proxy listens for clients (setting proxy.host).", show_default=False
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="The port on which a proxy listens for clients (setting proxy.port).", show_default=False
        ),
    ] = None,
    config: Config = None,
    assignments: Set = None,
) -> None:
    """Run roles of a cluster in this process until it is interrupted (docs/cluster.md)."""
    named = {"data_dir": data_dir, "proxy.host": host, "proxy.port": port}

    def program() -> Program:
        from elanus.server.cluster.run import run

        return lambda settings: run(settings, tuple(roles))

    _run_until_interrupted(program, config, named, assignments)


def _run_until_interrupted(
    program_of: Callable[[], Program],
    config: Path | None,
    named: Mapping[str, object],
    assignments: list[str] | None,
) -> None:
    """Run a server, and end this process with its exit code. ``program_of`` imports what it needs."""
    from elanus.cli.quick_imports import quick_imports

    with quick_imports():
        settings = effective_settings(config, named, assignments)
        from elanus.storage.without_pandas import keep_pandas_out

        keep_pandas_out()
        program = program_of()
        from elanus.server.startup import CannotStart

    try:
        code = program(settings)
    except CannotStart as error:
        fail(str(error), EXIT_FAILED)
    from elanus.server.ending import end_process

    end_process(code)


@tls_app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where the files are written. Created if it is missing.")],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A name or address of the server. May be repeated. Default: localhost."),
    ] = None,
) -> None:
    """Make a CA and certificates for a server and a client, for development (docs/security.md)."""
    from elanus.cli.certificates import CannotWrite, write_certificates

    try:
        written = write_certificates(directory, name or ["localhost", "127.0.0.1"])
    except CannotWrite as error:
        fail(str(error), EXIT_FAILED)
    for file in written:
        typer.echo(file)


@app.command(rich_help_panel=INSPECT)
def status(
    data_dir: DataDir = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
    wide: Wide = False,
) -> None:
    """Show a running server: roles, channels, collections, segments, jobs."""
    from elanus.cli import remote
    from elanus.cli.status import show_status

    try:
        answer = remote.get(observe_url(data_dir, url) + "/status")
        if as_json:
            typer.echo(answer.decode())
        else:
            show_status(answer, wide=wide)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)


app.command(rich_help_panel=INSPECT)(doctor)
app.command(rich_help_panel=INSPECT)(explain)
app.command(rich_help_panel=INSPECT)(slow)
app.command(rich_help_panel=INSPECT)(estimate)
app.command(rich_help_panel=OPERATE)(share_port)


@app.command("restart-role", rich_help_panel=OPERATE)
def restart_role(
    role: Annotated[str, typer.Argument(help="Such as querynode; `elanus status` lists them.")],
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """Restart one role inside a running server of this machine."""
    from elanus.cli import remote

    try:
        remote.restart_role(observe_url(data_dir, url), role)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    typer.echo(f"{role} restarted")


@app.command("import", rich_help_panel=DATA)
@on_server
def import_(
    files: Annotated[list[Path], typer.Argument(help="Files on this machine, or directories of them.")],
    collection: Annotated[str, typer.Option(help="The collection to import into; it must exist.")],
    partition: Annotated[str, typer.Option(help="Default: the default partition.", show_default=False)] = "",
    database: Annotated[str, typer.Option(help="The collection's database.")] = "default",
    idempotency_key: Annotated[
        str, typer.Option(help="A name for this import: repeating the command with it imports nothing twice.")
    ] = "",
    max_rejects: Annotated[
        int,
        typer.Option(
            min=0, help="How many rows that do not fit the schema may be left out; they are listed."
        ),
    ] = 0,
    mode: Annotated[
        str, typer.Option(help="insert, or upsert: replaces the rows that have the same keys.")
    ] = "insert",
    duplicates: Annotated[
        str, typer.Option(help="Which rows of one key are added: keep (all), first, last or reject.")
    ] = "",
    *,
    server: ServerOptions,
) -> None:
    """Import files into a collection: all rows at once, or none. Ctrl-C cancels.

    Parquet, JSON, JSON lines, CSV, and NumPy files (a file a column).
    """
    from rich.console import Console

    from elanus.cli.import_command import ImportFailed, Wanted, import_files

    found = server.find()
    wanted = Wanted(files, database, collection, partition, idempotency_key, max_rejects, mode, duplicates)
    try:
        done = import_files(found, wanted, Console(stderr=True))
    except ImportFailed as error:
        fail(f"nothing was imported: {error}", EXIT_FAILED)
    left_out = f"; {done.rejected} rows did not fit: rejects/{done.task_id} in the import directory"
    doubled = f"; {done.left_out} left out because of their keys" if done.left_out else ""
    rejected = left_out if done.rejected else ""
    typer.echo(f"{done.rows} rows imported into {done.collection}{rejected}{doubled}")


@app.command(rich_help_panel=OPERATE)
def gc(
    data_dir: DataDir = None,
    url: Url = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Delete nothing; show what would be deleted, and what is kept until when."
        ),
    ] = False,
) -> None:
    """Collect garbage now on a running server of this machine, and show what was deleted."""
    from elanus.cli import gc, remote

    try:
        done = gc.run(observe_url(data_dir, url), dry=dry_run)
    except remote.NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        fail("no longer waiting: the server continues the collection", EXIT_FAILED)
    if not done:
        raise typer.Exit(EXIT_FAILED)


app.command(rich_help_panel=DATA)(backup)
app.command(rich_help_panel=DATA)(restore)
app.command(rich_help_panel=OPERATE)(verify)
app.command(rich_help_panel=DATA)(clone)
app.command(rich_help_panel=DATA)(undrop)


@app.command(rich_help_panel=RUN)
def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", help="Keep the data here. Default: a temporary directory.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Vectors: an .npz with train, train_label, test. Default: MNIST digits, shipped."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The directory for the picture.")] = Path("out"),
) -> None:
    """Run a tour on real data: start a server, insert, index, search, and draw the neighbours."""
    if find_spec("pymilvus") is None:
        fail("the demo is a client: pip install 'elanus[demo]'", EXIT_FAILED)
    from elanus.demo.run import DemoFailed, run

    try:
        run(data_dir=data_dir, data=data, out=out)
    except DemoFailed as error:
        fail(str(error), EXIT_FAILED)


@app.command(rich_help_panel=DEVELOP)
def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 20,
    first: Annotated[int, typer.Option(help="The first seed.")] = 1,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the seeds. Default: one per processor.")
    ] = None,
    findings: Annotated[
        Path, typer.Option(help="The directory for the shrunk scenarios of violations.")
    ] = Path("sim-findings"),
    replay: Annotated[
        Path | None, typer.Option(help="Run the scenario in this file instead, and print its story.")
    ] = None,
) -> None:
    """Run the whole system on virtual time under seeded faults, and check every invariant."""
    from elanus.cli.simulate import replay_scenario, simulate
    from elanus.core.errors import InvalidParameter

    try:
        kept = replay_scenario(replay) if replay else simulate(first, seeds, processes, findings)
    except InvalidParameter as error:
        fail(error.message, EXIT_MISUSED)
    if not kept:
        raise typer.Exit(EXIT_FAILED)


@app.command("dev-cluster", rich_help_panel=RUN)
def dev_cluster(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Keep the cluster's data here. Default: a temporary directory.", show_default=False
        ),
    ] = None,
    services: Annotated[
        str, typer.Option("--with", help="What to start, separated by commas.")
    ] = "etcd,nats,s3,spark,elanus",
    proxies: Annotated[int, typer.Option(min=1, help="Proxies of the cluster.")] = 1,
    query_nodes: Annotated[int, typer.Option(min=1, help="Query nodes of the cluster.")] = 2,
    data_nodes: Annotated[int, typer.Option(min=1, help="Data nodes of the cluster.")] = 1,
    port: Annotated[int, typer.Option(help="The port of the first proxy.")] = 19_530,
) -> None:
    """Start a whole cluster on this machine, its services included, until it is interrupted."""
    from elanus.devcluster.command import Size, run
    from elanus.devcluster.process import ServiceFailed

    try:
        names = [name.strip() for name in services.split(",")]
        run(directory, names, Size(proxies, query_nodes, data_nodes, port), typer.echo)
    except ServiceFailed as error:
        fail(str(error), EXIT_FAILED)


@app.command(rich_help_panel=RUN)
def settings(data_dir: DataDir = None, config: Config = None, assignments: Set = None) -> None:
    """Print the settings in effect, as a YAML file that --config takes."""
    effective = effective_settings(config, {"data_dir": data_dir}, assignments)
    from elanus.server.settings_page import as_yaml

    typer.echo(as_yaml(effective), nl=False)


@app.command(rich_help_panel=RUN)
def version() -> None:
    """Print the version, as `elanus --version` does."""
    _print_version(True)


@app.command(hidden=True)
def pipeline(
    number: Annotated[str, typer.Argument(help="The number of the socket to the process that starts it.")],
) -> None:
    """Run the pipeline process. The server starts it itself."""
    from elanus.server.pipeline_process import run

    run(number)


@app.command(hidden=True)
def serving(
    online: Annotated[str, typer.Option(help="The address of the coordinators.")],
    front: Annotated[str, typer.Option(help="Where calls are passed on to.")],
    address: Annotated[str, typer.Option(help="Where this process is to answer.")],
    number: Annotated[int, typer.Option(help="Its number.")],
) -> None:
    """Run a serving process, with the settings on standard input. The server starts it itself."""
    from elanus.cli.quick_imports import quick_imports

    with quick_imports():
        from elanus.storage.without_pandas import keep_pandas_out

        keep_pandas_out()
        from elanus.server.serving.process import run

    run(online, front, address, number)


@app.command(hidden=True)
def docs(directory: Annotated[Path, typer.Argument(help="Where the pages are.")]) -> None:
    """Write the pages that are made from the code."""
    from elanus.cli.pages import pages

    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")
