"""The development page lists the files to touch for each kind of addition: all of them, and only those.

Each test adds a toy to a copy of the sources, in the listed files, and runs a script that uses it. Without
any one of these files the script fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from additions import INDEX, JOB, SETTING, TYPES
from growth import SOURCES, Addition, checked, copied, listed

ADDITIONS: dict[str, tuple[str, Addition]] = {
    "A data type": ("adding_a_type.py", TYPES),
    "An index kind": ("adding_an_index_kind.py", INDEX),
    "A setting": ("adding_a_setting.py", SETTING),
    "A job": ("adding_a_job.py", JOB),
}


@pytest.mark.parametrize("thing", ADDITIONS)
def test_the_page_lists_the_files_of_an_addition(thing: str) -> None:
    assert listed(thing) == list(ADDITIONS[thing][1])


@pytest.mark.slow
@pytest.mark.parametrize("thing", ADDITIONS)
def test_an_addition_works_with_the_listed_files(thing: str, tmp_path: Path) -> None:
    script, addition = ADDITIONS[thing]
    done = checked(script, copied(addition, tmp_path / "src"), str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("thing", "missing"), [(thing, path) for thing in ADDITIONS for path in ADDITIONS[thing][1]]
)
def test_an_addition_needs_every_listed_file(thing: str, missing: str, tmp_path: Path) -> None:
    script, addition = ADDITIONS[thing]
    done = checked(script, copied(addition, tmp_path / "src", {missing}), str(tmp_path))
    assert done.returncode == 1, done.stderr


def test_new_files_of_the_additions_are_new() -> None:
    new = [
        path
        for _, addition in ADDITIONS.values()
        for path, change in addition.items()
        if isinstance(change, str)
    ]
    assert new
    assert not [path for path in new if (SOURCES / path).exists()]
