"""Lines of code below ``src/elanus`` at some revisions: no comments, no docstrings, no generated modules.

``python tools/code_lines.py REVISION ...`` prints one line for each. For ``A..B`` it prints the lines that
the commits of that range added, less those that they removed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache

SOURCES = "src/elanus"
GENERATED = "/protos/"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def lines_of_code(source: str) -> int:
    """The lines that hold a part of a statement, docstrings aside."""
    tree = ast.parse(source)
    docstrings: set[int] = set()
    code: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    text = source.splitlines()
    for number, line in enumerate(text, 1):
        if line.strip() and not line.strip().startswith("#") and number not in docstrings:
            code.add(number)
    return len(code)


@cache
def lines_of_blob(blob: str) -> int:
    return lines_of_code(git("cat-file", "blob", blob))


def lines_at(revision: str) -> int:
    listing = (line.split() for line in git("ls-tree", "-r", revision, SOURCES).splitlines())
    return sum(
        lines_of_blob(blob) for _, _, blob, path in listing if path.endswith(".py") and GENERATED not in path
    )


def main() -> None:
    for revision in sys.argv[1:]:
        before, is_range, after = revision.partition("..")
        lines = lines_at(after) - lines_at(before) if is_range else lines_at(revision)
        sys.stdout.write(f"{revision}: {lines:+,} lines\n" if is_range else f"{revision}: {lines:,} lines\n")


if __name__ == "__main__":
    main()
