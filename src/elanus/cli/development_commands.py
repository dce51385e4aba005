"""The commands for people who try Elanus or work on it: a demo, a cluster, the simulator, certificates."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from elanus.cli.options import EXIT_FAILED, EXIT_MISUSED, directory_named, fail


def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            parser=directory_named,
            metavar="PATH",
            help="Keep the data here. Default: a temporary directory.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Vectors: an .npz with train, train_label, test. Default: MNIST digits, shipped."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The directory for the picture.")] = Path("out"),
) -> None:
    """Run a tour on real data: start a server, insert, index, search, and draw the neighbors."""
    if find_spec("pymilvus") is None:
        fail("the demo is a client: pip install 'elanus[demo]'", EXIT_FAILED)
    from elanus.demo.run import DemoFailed, run

    try:
        run(data_dir=data_dir, data=data, out=out)
    except DemoFailed as error:
        fail(str(error), EXIT_FAILED)


def dev_cluster(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            parser=directory_named,
            metavar="PATH",
            help="Keep the cluster's data here. Default: a temporary directory.",
            show_default=False,
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


def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 20,
    first: Annotated[int, typer.Option(help="The first seed.")] = 1,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the seeds. Default: one per processor.")
    ] = None,
    brief: Annotated[
        bool, typer.Option("--brief", help="Short scenarios: 4 s of work each, with more faults a second.")
    ] = False,
    clusters: Annotated[
        bool, typer.Option("--clusters", help="Pass over the seeds that have only one query node.")
    ] = False,
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
        if replay:
            kept = replay_scenario(replay)
        else:
            kept = simulate(first, seeds, processes, findings, is_brief=brief, only_clusters=clusters)
    except InvalidParameter as error:
        fail(error.message, EXIT_MISUSED)
    if not kept:
        raise typer.Exit(EXIT_FAILED)


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


def docs(directory: Annotated[Path, typer.Argument(help="Where the pages are.")]) -> None:
    """Write the pages that are made from the code."""
    from elanus.cli.pages import pages

    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")
