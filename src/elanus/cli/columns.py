"""Tables as plain text: columns separated by spaces, the same in a terminal, in a file and in a pipe.

A cell is never truncated and never empty, and only the last column may contain spaces, so ``awk`` finds
every column by its number. Color is used only on terminals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from elanus.cli.harmless import harmless

EMPTY = "-"
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """``right``: right-aligned, for numbers. ``wide``: shown only in the wide form."""

    name: str
    right: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """``style``: a rich style, such as ``red``."""

    text: str
    style: str = ""


Row = Sequence[str | Cell]


def table(title: str, columns: Sequence[Column], rows: Sequence[Row], *, wide: bool = False) -> Text:
    """Return the title in upper case, a line with the names of the columns, and a line for each row.

    A row has one cell per column, including those of the wide form.
    """
    shown = [number for number, column in enumerate(columns) if wide or not column.wide]
    last = shown[-1]
    grid = [[_cell(row[n], spaces=n == last) for n in shown] for row in rows]
    grid.insert(0, [Cell(columns[n].name) for n in shown])
    widths = [max(len(line[at].text) for line in grid) for at in range(len(shown))]
    text = Text(title.upper(), "bold")
    for line in grid:
        text.append("\n")
        for at, cell in enumerate(line):
            is_last = at == len(shown) - 1
            padding = " " * (widths[at] - len(cell.text))
            if columns[shown[at]].right:
                text.append(padding)
            text.append(cell.text, cell.style or None)
            if not is_last:
                text.append(_GAP if columns[shown[at]].right else padding + _GAP)
    return text


def show(console: Console, text: Text | str) -> None:
    """Print without wrapping or truncating, however narrow the terminal is, and nothing that it obeys."""
    shown = text.copy() if isinstance(text, Text) else Text(text)
    shown.plain = harmless(shown.plain)
    console.print(shown, soft_wrap=True, highlight=False, markup=False)


def _cell(value: str | Cell, *, spaces: bool) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    words = cell.text.split()
    return Cell((" " if spaces else "_").join(words) or EMPTY, cell.style)
