"""Command line: ``run`` measures, ``render`` makes the page; the other runs are small ones."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer

from benchmarks import dataset
from benchmarks.report.page import render_page
from benchmarks.results import Results
from benchmarks.runner import Plan
from benchmarks.runner import run as run_plan
from benchmarks.settings import (
    DEFAULT_DATA,
    NOTES,
    SHOWN_DAY,
    SHOWN_DAY_PICTURE,
    SHOWN_FRESHNESS,
    SHOWN_GROWTH,
    SHOWN_PIPELINE,
    SHOWN_RESULTS,
    SHOWN_SCALING,
    Settings,
    quick,
)
from benchmarks.systems import NAMES

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
def run(
    data: Annotated[Path, typer.Option(help="vectors: .npz with train and test, or .parquet")] = DEFAULT_DATA,
    systems: Annotated[str, typer.Option(help=f"comma-separated, of: {', '.join(NAMES)}")] = ",".join(NAMES),
    rows: Annotated[int | None, typer.Option(help="use only so many training vectors", min=1)] = None,
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
    try:
        vectors = dataset.load(data, rows, settings.queries, vector_column)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        run_plan(Plan(names, vectors, settings, out, config, keep))
    except KeyboardInterrupt:
        typer.echo(f"interrupted; everything started has been stopped; {out} has what was measured", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"wrote {out}; render it with: python -m benchmarks render {out}")


@app.command()
def render(
    results: Annotated[Path, typer.Argument(help="file that `run` wrote")] = SHOWN_RESULTS,
    notes: Annotated[Path, typer.Option(help="Markdown on why targets are missed, if it exists")] = NOTES,
) -> None:
    """Print the results page as Markdown."""
    why = notes.read_text() if notes.exists() else None
    typer.echo(render_page(Results.read(results), why), nl=False)


@app.command()
def freshness(
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_FRESHNESS,
    turns: Annotated[int, typer.Option(help="inserts and searches of each kind", min=1)] = 300,
) -> None:
    """Measure how soon a write is seen, with one proxy and with three."""
    # Imported here: it is the server's own code, which a run of the peers alone does not need.
    from benchmarks import freshness as measured

    out.write_bytes(msgspec.json.encode(measured.measure(turns)))
    typer.echo(f"wrote {out}; render it with: python -m benchmarks render-freshness {out}")


@app.command()
def render_freshness(
    results: Annotated[Path, typer.Argument(help="file that `freshness` wrote")] = SHOWN_FRESHNESS,
) -> None:
    """Print the freshness page as Markdown."""
    from benchmarks.freshness import Freshness
    from benchmarks.report import freshness_page

    found = msgspec.json.decode(results.read_bytes(), type=Freshness)
    typer.echo(freshness_page.render_freshness(found), nl=False)


@app.command()
def pipeline(
    out: Annotated[Path, typer.Option(help="results file to write")] = SHOWN_PIPELINE,
    picture: Annotated[Path, typer.Option(help="SVG of growth to write")] = SHOWN_GROWTH,
) -> None:
    """Measure the pipeline's jobs beside plain work, flush calls, and growth: some minutes."""
    from benchmarks.pipeline import figures
    from benchmarks.report.growth_plot import draw_growth

    found = figures.measure(typer.echo)
    out.write_bytes(msgspec.json.encode(found))
    draw_growth(found.growth, picture)
    typer.echo(f"wrote {out} and {picture}; render it with: python -m benchmarks render-pipeline {out}")


@app.command()
def render_pipeline(
    results: Annotated[Path, typer.Argument(help="file that `pipeline` wrote")] = SHOWN_PIPELINE,
) -> None:
    """Print the pipeline's page as Markdown."""
    from benchmarks.pipeline.figures import Figures
    from benchmarks.report import pipeline_page

    found = msgspec.json.decode(results.read_bytes(), type=Figures)
    typer.echo(pipeline_page.render_pipeline(found), nl=False)


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
) -> None:
    """Measure clusters of one, two and four query nodes: a quarter of an hour."""
    from benchmarks.scaling import measure

    out.write_bytes(msgspec.json.encode(measure.measure(turns, collections, typer.echo)))
    typer.echo(f"wrote {out}; render it with: python -m benchmarks render-scaling {out}")


@app.command()
def render_scaling(
    results: Annotated[Path, typer.Argument(help="file that `scaling` wrote")] = SHOWN_SCALING,
) -> None:
    """Print the scaling page as Markdown."""
    from benchmarks.report import scaling_page
    from benchmarks.scaling.figures import Scaling

    found = msgspec.json.decode(results.read_bytes(), type=Scaling)
    typer.echo(scaling_page.render_scaling(found), nl=False)


@app.command(name="kernels")
def time_kernels() -> None:
    """Time the inner loops on which the server's design rests."""
    # Imported here: the kernels are the server's own code, which a run of the peers alone does not need.
    from benchmarks import kernels

    for line in kernels.report():
        typer.echo(line)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Unwind, so that everything started is stopped; SIGTERM is taken like Ctrl-C."""
    raise KeyboardInterrupt
