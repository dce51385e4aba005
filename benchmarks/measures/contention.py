"""Searches while something else goes on: rows arriving, an index being built."""

from __future__ import annotations

from benchmarks.bench import ADDED_KEYS, MAIN, OTHER, Bench, Values
from benchmarks.clients import Client
from benchmarks.measures.build import index_arguments
from benchmarks.measures.search import ef_95
from benchmarks.measures.searching import Asked, begin_search, finish_search, prepare

BUILD_LIMIT_S = 600.0


def measure_during_build(bench: Bench) -> Values:
    """One client searches the main collection for as long as another collection's index takes to build."""
    rows = min(bench.settings.build_rows, len(bench.data.train))
    with bench.more_clients(1) as [builder]:
        _fill_other(bench, builder, rows)
        stop = bench.place.folder / "built"
        prepare(bench, [bench.main], Asked(ef_95(bench)))
        begin_search(bench.main, BUILD_LIMIT_S, stop_file=stop)
        try:
            build_s = builder.call("build_index", **index_arguments(bench, OTHER))
        finally:
            stop.touch()
            found = finish_search([bench.main])
            stop.unlink()
        builder.call("drop", collection=OTHER)
    return {
        "building.index_s": build_s,
        "building.qps": found.calls_per_s,
        "building.p50_ms": found.p50_ms,
        "building.p99_ms": found.p99_ms,
    }


def measure_during_insert(bench: Bench) -> Values:
    """One client searches while another inserts into the same collection at a steady rate."""
    settings = bench.settings
    seconds = settings.search_s * settings.repeats
    with bench.more_clients(1) as [writer]:
        prepare(bench, [bench.main], Asked(ef_95(bench)))
        writer.begin(
            "insert_at_rate",
            collection=MAIN,
            first_key=ADDED_KEYS + 1_000_000,
            rows_per_s=settings.write_rows_per_s,
            batch_rows=settings.write_batch_rows,
            seconds=seconds,
        )
        begin_search(bench.main, seconds)
        found = finish_search([bench.main])
        written = writer.finish()
    return {
        "inserting.qps": found.calls_per_s,
        "inserting.p50_ms": found.p50_ms,
        "inserting.p99_ms": found.p99_ms,
        "inserting.rows_per_s": written["rows"] / written["seconds"],
    }


def _fill_other(bench: Bench, builder: Client, rows: int) -> None:
    builder.call("create", collection=OTHER)
    builder.call("insert", collection=OTHER, rows=rows, batch_rows=bench.settings.insert_batch_rows)
    builder.call("flush", collection=OTHER)
