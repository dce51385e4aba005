"""The page of a day: the picture, what is left at its end, and the ledger."""

from __future__ import annotations

from benchmarks.pipeline.day import BATCH_ROWS, BATCHES, DIM, PARTS, SETTINGS, SURPLUS_MAX, Day

_MB = 1_000_000

PAGE = """\
# A day in the life of a server

*Written by `make day`.*

![Bytes on disk over time]({picture})

Two collections get {batches} batches of {rows:,} rows of dimension {dim}; of one, half of every batch is
deleted again, the other is dropped at the end. Every batch is flushed, and every segment indexed. Then the
segments that are left are compacted and the garbage is collected, with retention and tolerances at zero
({settings}).

At the end the rows that are left, with their index, are {live_mb:.1f} MB: eight bytes for a key, four for
each float, and the file of raw faiss for the same index. On disk are **{total_mb:.1f} MB** ({parts}):
**{surplus:+.0%}** (target at most {most:+.0%}: {verdict}).

The ledger, as `elanus jobs` prints it:

```
{ledger}
```
"""


def render_day(day: Day, picture: str) -> str:
    last = day.samples[-1]
    sizes = zip(PARTS, last.sizes_bytes, strict=True)
    return PAGE.format(
        picture=picture,
        batches=BATCHES,
        rows=BATCH_ROWS,
        dim=DIM,
        settings=", ".join(f"`{name}={value}`" for name, value in SETTINGS.items()),
        live_mb=day.live_bytes / _MB,
        total_mb=last.total_bytes / _MB,
        parts=", ".join(f"{name} {size / _MB:.1f}" for name, size in sizes),
        surplus=day.surplus,
        most=SURPLUS_MAX,
        verdict="met" if day.is_clean else "missed",
        ledger="\n".join(line.rstrip() for line in day.ledger.strip().splitlines()),
    )
