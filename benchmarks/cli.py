"""Command line: ``run`` and its smaller siblings measure, ``render`` makes the page of any of them.

The server's own code, which a run of the peers alone does not need, is imported by the commands that need it.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer

from benchmarks import dataset
from benchmarks.measures import QUESTIONS
from benchmarks.results import moment
from benchmarks.runner import Plan
from benchmarks.runner import run as run_plan
from benchmarks.settings import (
    BENCH_FOLDER,
    DEFAULT_DATA,
    SHOWN_DAY,
    SHOWN_DAY_PICTURE,
    SHOWN_DOOR,
    SHOWN_FRESHNESS,
    SHOWN_GROWTH,
    SHOWN_INGEST,
    SHOWN_LIMITS,
    SHOWN_LIMITS_PAGE,
    SHOWN_PIPELINE,
    SHOWN_SCALING,
    SHOWN_SIZES,
    SHOWN_SURFACE,
    SHOWN_SURFACE_PAGE,
    Settings,
    quick,
)
from benchmarks.systems import NAMES

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
def run(
    data: Annotated[Path, typer.Option(help="vectors: .npz with train and test, or .parquet")] = DEFAULT_DATA,
    systems: Annotated[str, typer.Option(help=f"comma-separated, of: {', '.join(NAMES)}")] = ",".join(NAMES),
    drawn: Annotated[str, typer.Option(help="draw vectors instead: ROWSxDIM, such as 1000000x128")] = "",
    rows: Annotated[int | None, typer.Option(help="use only so many training vectors", min=1)] = None,
    only: Annotated[list[str] | None, typer.Option(help="ask this question only; may be repeated")] = None,
    out: Annotated[Path, typer.Option(help="results file to write")] = Path(".bench/results.json"),
    quickly: Annotated[bool, typer.Option("--quick", help="one short repeat: a check, not to quote")] = False,
    vector_column: Annotated[str | None, typer.Option(help="vectors' column in a .parquet file")] = None,
    config: Annotated[Path | None, typer.Option(help="configuration file for elanus")] = None,
    keep: Annotated[bool, typer.Option(help="keep data and logs in .bench/run")] = False,
) -> None:
    """Measure the systems side by side and write the results."""
    settings = quick() if quickly else Settings()
    names = [name.strip() for name in systems.split(",") if name.strip()]
    if unknown := [name for name in names if name not in NAMES]:
        raise typer.BadParameter(f"unknown {', '.join(unknown)}; known are {', '.join(NAMES)}")
    questions = [question for question in QUESTIONS if not only or question.name in only]
    if only and len(questions) != len(set(only)):
        known = "; ".join(question.name for question in QUESTIONS)
        raise typer.BadParameter(f"{only} are not all questions; known are: {known}", param_hint="--only")
    try:
        if drawn:
            vectors = dataset.drawn(*_size(drawn), settings.queries)
        else:
            vectors = dataset.load(data, rows, settings.queries, vector_column)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        sized = settings.for_rows(len(vectors.train))
        run_plan(Plan(names, vectors, sized, out, questions, config, keep))
    except KeyboardInterrupt:
        typer.echo(f"interrupted; everything started has been stopped; {out} has what was measured", err=True)
        raise typer.Exit(130) from None
    _say_written("benchmarks", out)


def _size(text: str) -> tuple[int, int]:
    rows, _, dim = text.partition("x")
    if not (rows.isdigit() and dim.isdigit() and int(rows) and int(dim)):
        raise ValueError(f"{text!r} is not ROWSxDIM, such as 1000000x128")
    return int(rows), int(dim)


@app.command()
def render(
    page: Annotated[
        str,
        typer.Argument(help="benchmarks, freshness, huge, large, limits, pipeline, scaling, surface, wide"),
    ],
    results: Annotated[
        Path | None, typer.Argument(help="file that the run wrote; else the one in the documentation")
    ] = None,
) -> None:
    """Print a page as Markdown."""
    from benchmarks.report.pages import PAGES

    if page not in PAGES:
        raise typer.BadParameter(f"unknown {page}; known are {', '.join(PAGES)}")
    try:
        typer.echo(PAGES[page].made_from(results), nl=False)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def freshness(
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_FRESHNESS,
    turns: Annotated[int, typer.Option(help="inserts and searches of each kind", min=1)] = 300,
) -> None:
    """Measure how soon a write is seen, with one proxy and with three."""
    from benchmarks import freshness as measured

    out.write_bytes(msgspec.json.encode(measured.measure(turns)))
    _say_written("freshness", out)


@app.command()
def front(
    rounds: Annotated[int, typer.Option(help="of both servers, one after the other", min=1)] = 15,
    calls: Annotated[int, typer.Option(help="per round and server", min=100)] = 1000,
) -> None:
    """Compare the processor time per call of the serving loop and of grpcio's server."""
    from benchmarks.front import measure

    measure((1, 4), rounds, calls, typer.echo)


@app.command()
def budget(
    data: Annotated[Path, typer.Option(help="vectors: .npz with train and test, or .parquet")] = DEFAULT_DATA,
    drawn: Annotated[str, typer.Option(help="draw vectors instead: ROWSxDIM, such as 60000x192")] = "",
    rounds: Annotated[int, typer.Option(help="plain and explained searches in turns", min=1)] = 9,
    calls: Annotated[int, typer.Option(help="searches per round", min=100)] = 1000,
) -> None:
    """Say where the processor time of a small search goes: by thread and by step."""
    from benchmarks.budget import QUERIES, measure

    vectors = dataset.drawn(*_size(drawn), QUERIES) if drawn else dataset.load(data, None, QUERIES)
    for line in measure(vectors, rounds, calls, typer.echo).lines():
        typer.echo(line)


@app.command()
def serving(
    rounds: Annotated[int, typer.Option(help="of both processes, one after the other", min=1)] = 9,
    calls: Annotated[int, typer.Option(help="per round and process", min=100)] = 4000,
) -> None:
    """Compare the searches of one serving process and of several, and how that continues."""
    from benchmarks.serving import Model, measure

    model = Model.of(measure(rounds, calls, typer.echo))
    typer.echo(str(model))
    for processes in (1, 2, 4, 8, 16):
        typer.echo(f"{processes} processes: {model.ratio(processes):.2f} times the searches of one")


@app.command()
def pipeline(
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_PIPELINE,
    picture: Annotated[Path, typer.Option(help="SVG of growth to write")] = SHOWN_GROWTH,
    only: Annotated[str, typer.Option(help="comma-separated parts; the file's others stay as they are")] = "",
    quickly: Annotated[bool, typer.Option("--quick", help="few rows, once: a check, not to quote")] = False,
) -> None:
    """Measure the pipeline's jobs against plain work, calls, clusters, stores, growth: under half an hour."""
    from benchmarks.pipeline import figures
    from benchmarks.report.growth_plot import draw_growth

    parts = [name.strip() for name in only.split(",") if name.strip()] or list(figures.PARTS)
    if unknown := [name for name in parts if name not in figures.PARTS]:
        known = ", ".join(figures.PARTS)
        raise typer.BadParameter(f"unknown {', '.join(unknown)}; known are {known}", param_hint="--only")
    before = msgspec.json.decode(out.read_bytes(), type=figures.Figures) if only and out.exists() else None
    found = figures.measure(typer.echo, parts, figures.QUICK if quickly else figures.WHOLE, before)
    out.write_bytes(msgspec.json.encode(found))
    if "growth" in parts:
        draw_growth(found.growth, picture)
        typer.echo(f"wrote {picture}")
    _say_written("pipeline", out)


@app.command()
def day(
    page: Annotated[Path, typer.Option(help="page to write")] = SHOWN_DAY,
    picture: Annotated[Path, typer.Option(help="SVG of disk use to write")] = SHOWN_DAY_PICTURE,
) -> None:
    """Live through a server's day in a minute; fails when the disk holds too much at its end."""
    from benchmarks.pipeline.day import live
    from benchmarks.report.day_page import render_day
    from benchmarks.report.day_plot import draw_day

    found = live()
    draw_day(found, picture)
    page.write_text(render_day(found, picture.name))
    typer.echo(found.ledger)
    typer.echo(f"wrote {page} and {picture}")
    if not found.is_clean:
        typer.echo(f"the disk holds {found.surplus:.0%} more than what lives", err=True)
        raise typer.Exit(1)


@app.command()
def scaling(
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_SCALING,
    turns: Annotated[int, typer.Option(help="searches of each kind", min=1)] = 300,
    collections: Annotated[int, typer.Option(help="collections of the cluster at rest", min=1)] = 200,
    only: Annotated[str, typer.Option(help="measure 'reads', 'costs' or 'rest' alone, keep the others")] = "",
    remark: Annotated[str, typer.Option(help="what the page is to say of the circumstances")] = "",
) -> None:
    """Measure clusters of one, two and four query nodes: a quarter of an hour."""
    from benchmarks.scaling import measure
    from benchmarks.scaling.figures import Scaling

    if only not in ("", "reads", "costs", "rest"):
        raise typer.BadParameter(f"{only!r} is not 'reads', 'costs' or 'rest'", param_hint="--only")
    if only:
        found = msgspec.json.decode(out.read_bytes(), type=Scaling)
        if only == "rest":
            found = msgspec.structs.replace(found, idle=measure.measure_all_idle(collections, typer.echo))
        else:
            reads, costs = measure.measure_all_reads(turns, typer.echo)
            reads = reads if only == "reads" else list(found.reads)
            found = msgspec.structs.replace(found, reads=reads, costs=costs)
    else:
        found = measure.measure(turns, collections, typer.echo)
    out.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, remark=remark)))
    _say_written("scaling", out)


@app.command()
def limits(
    only: Annotated[str, typer.Option(help="comma-separated dimensions; the others stay as they are")] = "",
    minutes: Annotated[float, typer.Option(help="longest that one dimension grows", min=0.1)] = 10.0,
    idle: Annotated[float, typer.Option(help="seconds that a server at rest is watched", min=1)] = 20.0,
    trickle: Annotated[float, typer.Option(help="seconds of single writes at the end", min=1)] = 120.0,
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_LIMITS,
    page: Annotated[Path, typer.Option(help="page to write")] = SHOWN_LIMITS_PAGE,
) -> None:
    """Grow one dimension after the other until something gives. May be interrupted: it keeps what it has."""
    from benchmarks.limits.measure import DIMENSIONS, Budget, measure

    names = [name.strip() for name in only.split(",") if name.strip()] or list(DIMENSIONS)
    if unknown := [name for name in names if name not in DIMENSIONS]:
        raise typer.BadParameter(f"unknown {', '.join(unknown)}; known are: {', '.join(DIMENSIONS)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        measure(names, Budget(60 * minutes, idle, trickle), out, page, typer.echo)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the server is stopped; {out} and {page} have what was measured", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"wrote {out} and {page}")


@app.command()
def surface(
    only: Annotated[str, typer.Option(help="comma-separated parts; the others stay as they are")] = "",
    share: Annotated[float, typer.Option(help="of the rows of a whole run", min=0.001, max=10)] = 1.0,
    rounds: Annotated[int, typer.Option(help="of each kind of search", min=1)] = 7,
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_SURFACE,
    page: Annotated[Path, typer.Option(help="page to write")] = SHOWN_SURFACE_PAGE,
    keep: Annotated[
        Path | None, typer.Option(help="directory that keeps what is built, for further runs")
    ] = None,
) -> None:
    """Measure full-text and hybrid search, narrow vectors, and the index on disk: an hour and more."""
    from benchmarks.surface.measure import PARTS, measure

    names = [name.strip() for name in only.split(",") if name.strip()] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise typer.BadParameter(f"unknown {', '.join(unknown)}; known are: {', '.join(PARTS)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        measure(names, share, rounds, out, page, keep, typer.echo)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the server is stopped; {out} and {page} have what was measured", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"wrote {out} and {page}")


@app.command()
def idle(
    collections: Annotated[str, typer.Option(help="how many, with commas between")] = "0,14,50,200",
    seconds: Annotated[float, typer.Option(help="how long each is watched", min=1)] = 30.0,
    released: Annotated[bool, typer.Option("--released", help="release the collections first")] = False,
) -> None:
    """Measure the processor time of a server that nobody uses, by its number of small collections."""
    from benchmarks import idle as measured

    counts = [int(count) for count in collections.split(",")]
    measured.measure(counts, seconds, typer.echo, loaded=not released)


@app.command()
def asleep() -> None:
    """Measure a server's memory while Spark runs and sleeps, and what waking it costs a flush."""
    from benchmarks import asleep as measured

    measured.measure(typer.echo)


@app.command()
def ingest(
    out: Annotated[Path | None, typer.Option(help="page to write; else that in docs/")] = None,
    quickly: Annotated[bool, typer.Option("--quick", help="few calls: a check, not to quote")] = False,
) -> None:
    """Measure inserts, upserts and deletes by shards, connections and rows in a call."""
    from benchmarks import ingest as measured

    out = out or (BENCH_FOLDER / "ingest.md" if quickly else SHOWN_INGEST)
    facts = moment()
    found = measured.measure(measured.QUICK if quickly else measured.WHOLE, typer.echo)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(measured.page(found, facts))
    typer.echo(f"wrote {out}")


@app.command()
def acknowledgement(
    rounds: Annotated[int, typer.Option(help="of both servers, one after the other", min=1)] = 9,
    calls: Annotated[int, typer.Option(help="rows per round and server", min=1)] = 300,
) -> None:
    """Measure the acknowledgement of one inserted row, and the disk's share of it."""
    from benchmarks import acknowledgement as measured

    typer.echo(measured.summary(measured.measure(rounds, calls, typer.echo)))


@app.command()
def feed(
    rows: Annotated[int, typer.Option(help="for each reader, one after the other", min=1)] = 50,
) -> None:
    """Measure how soon the change feed has a row that was inserted."""
    from benchmarks import feed as measured

    typer.echo(measured.summary(measured.measure(rows, typer.echo)))


@app.command()
def sizes(
    out: Annotated[
        Path | None, typer.Option(help="page to write, with a picture next to it; else that in docs/")
    ] = None,
    quickly: Annotated[bool, typer.Option("--quick", help="small sizes: a check, not to quote")] = False,
) -> None:
    """Measure what a search costs by rows, dimensions and segments, next to faiss."""
    from benchmarks import sizes as measured

    out = out or (BENCH_FOLDER / "sizes.md" if quickly else SHOWN_SIZES)
    facts = moment()
    figures = measured.measure(measured.QUICK if quickly else measured.WHOLE, typer.echo)
    out.parent.mkdir(parents=True, exist_ok=True)
    measured.draw(figures, out.with_suffix(".svg"))
    out.write_text(
        f"{measured.page(figures, facts)}\n![The same as curves]({out.with_suffix('.svg').name})\n"
    )
    typer.echo(f"wrote {out}")


@app.command()
def build(
    rows: Annotated[int, typer.Option(help="of the segment", min=1000)] = 100_000,
    dim: Annotated[int, typer.Option(help="of its vectors", min=2)] = 128,
    turns: Annotated[int, typer.Option(help="of each side", min=1)] = 3,
) -> None:
    """Measure the build of one segment's HNSW index next to raw faiss, in turns, with all processors."""
    from benchmarks.pipeline import indexing

    typer.echo(indexing.summary(indexing.measure_large(rows, dim, turns)))


@app.command()
def heartbeat() -> None:
    """Measure how late the event loop of a server is under large inserts, deletes, loads and searches."""
    from benchmarks import heartbeat as measured

    measured.measure(typer.echo)


@app.command(name="rest")
def rest_and_grpc() -> None:
    """Measure searches and inserts by REST next to gRPC."""
    from benchmarks import rest

    rest.measure(typer.echo)


@app.command()
def door(
    out: Annotated[Path, typer.Option(help="page to write")] = SHOWN_DOOR,
    disk: Annotated[Path | None, typer.Option(help="directory for the copies of backups")] = None,
) -> None:
    """Measure guard, sign-in, REST, console and backup against their limits, and write the page."""
    from benchmarks import door as measured

    found = measured.measure(typer.echo, disk)
    out.write_text(measured.page(found))
    typer.echo(f"wrote {out}")


@app.command(name="kernels")
def time_kernels() -> None:
    """Time the inner loops on which the server's design rests."""
    from benchmarks import kernels

    for line in kernels.report():
        typer.echo(line)


def _say_written(page: str, out: Path) -> None:
    typer.echo(f"wrote {out}; render it with: python -m benchmarks render {page} {out}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Unwind, so that everything started is stopped; SIGTERM is taken like Ctrl-C."""
    raise KeyboardInterrupt
