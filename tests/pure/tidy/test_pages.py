"""The pages say what the code does: they are compared with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
import yaml

from elanus import __version__
from elanus.cli.app import app
from elanus.cli.pages import pages
from elanus.metrics import SPECS
from elanus.proxy.wire.tolerances import TOLERANCES
from elanus.server.settings import Settings
from elanus.server.settings_load import setting_names

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
MARKDOWN = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/**/*.md")})

SOURCES_ROOT = ROOT / "src" / "elanus"
SOURCES = sorted(SOURCES_ROOT.rglob("*.py"))

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)+)[`=]")
MENTIONED = re.compile(
    r"(?<![\w./-])([a-z_]+(?:\.[a-z_]+)+_(?:s|ms|mb|max|min))\b(?!\w|\(|\.\w)(?=[^\n]*[\"`])"
)
FILE_ENDINGS = (".py", ".yaml", ".log", ".md", ".db")
METRIC = re.compile(r"\belanus_[a-z_0-9]+")
OF_THE_PROCESS = {"elanus_process_resident_memory_bytes", "elanus_process_cpu_seconds_total"}
SQL_FUNCTIONS = {"elanus_search", "elanus_jobs"}
"""They are named like metrics."""
SOURCE_FILE = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`")
DOTTED = re.compile(r"`elanus\.(\w+(?:\.\w+)*)`")
COMMAND = re.compile(r"(?:`|^)(?:\.venv/bin/)?elanus ([^`\n]*)", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("name", pages())
def test_a_generated_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run `make docs`"


def test_the_compatibility_page_has_today_s_parameters() -> None:
    """The whole page takes a run of every client; its last table does not."""
    table = (DOCS / "compatibility.md").read_text().rpartition("|---|---|---|\n")[2]
    rows = [f"| {row.parameters} | {row.where} | {row.treatment} |" for row in TOLERANCES]
    assert table.splitlines() == rows, "run `make compatibility`"


def test_every_setting_has_its_heading_and_a_sentence() -> None:
    text = (DOCS / "configuration.md").read_text()
    for name in setting_names():
        entry = re.search(rf"^###? {re.escape(name)}\n\n(.+)\n", text, re.MULTILINE)
        assert entry, f"{name} has no heading"
        assert entry[1].endswith("."), f"{name} is not described"


def test_every_metric_and_every_command_has_its_heading() -> None:
    metrics = HEADING.findall((DOCS / "metrics.md").read_text())
    assert metrics == ["Metrics", *(spec.name for spec in SPECS)]
    commands = HEADING.findall((DOCS / "cli.md").read_text())
    groups = [group.typer_instance for group in app.registered_groups]
    below = [command for group in groups if group for command in group.registered_commands]
    visible = [command for command in (*app.registered_commands, *below) if not command.hidden]
    assert len(commands) == 1 + len(visible) + len(groups)


def test_the_glossary_is_sorted_and_defines_each_term_once() -> None:
    terms = re.findall(r"^\*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 20
    assert terms == sorted(set(terms), key=str.casefold)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "#")):
            continue
        target = (page.parent / link.partition("#")[0]).resolve()
        assert target.exists(), f"{link} leads nowhere"


def test_settings_shown_in_pages_are_settings() -> None:
    for page in MARKDOWN:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            Settings.model_validate(yaml.safe_load(block))
        for name in re.findall(r"--set ([a-z_.]+)=", page.read_text()):
            assert name in setting_names(), f"{page.name}: {name}"


def test_settings_named_in_texts_exist() -> None:
    """In pages all names between backticks; in messages and docstrings those that end like a setting."""
    sections = {name.partition(".")[0] for name in setting_names()}
    known = {*setting_names(), *(name.rpartition(".")[0] for name in setting_names())}
    found = [
        (page, name)
        for pages_, pattern in ((MARKDOWN, NAMED), (SOURCES, MENTIONED))
        for page in pages_
        for name in pattern.findall(page.read_text())
        if name.partition(".")[0] in sections and not name.endswith(FILE_ENDINGS)
    ]
    assert len(found) > 100
    assert [(str(page), name) for page, name in found if name not in known] == []


def test_metrics_named_in_pages_exist() -> None:
    known = {*(spec.name for spec in SPECS), *OF_THE_PROCESS, *SQL_FUNCTIONS}
    for page in MARKDOWN:
        named = set(METRIC.findall(page.read_text()))
        assert named <= known, f"{page.name}: {named - known}"


def test_files_of_the_sources_named_in_pages_exist() -> None:
    for page in set(MARKDOWN) - {ROOT / "CHANGELOG.md"}:  # which is about the past
        for path in SOURCE_FILE.findall(page.read_text()):
            assert any((place / path).exists() for place in (ROOT, SOURCES_ROOT)), f"{page.name}: {path}"


def test_modules_and_names_in_docstrings_exist() -> None:
    """`elanus.room.module.Name`: the module is a file, and the name is somewhere in it."""
    dead = []
    for source in SOURCES:
        for dotted in DOTTED.findall(source.read_text()):
            path, parts = SOURCES_ROOT, dotted.split(".")
            while parts and (path / parts[0]).is_dir():
                path /= parts.pop(0)
            if parts and (path / f"{parts[0]}.py").is_file():
                path /= f"{parts.pop(0)}.py"
            text = (path if path.is_file() else path / "__init__.py").read_text()
            if not all(re.search(rf"\b{name}\b", text) for name in parts):
                dead.append(f"{source.relative_to(ROOT)}: elanus.{dotted}")
    assert dead == []


def test_commands_and_options_named_in_pages_exist() -> None:
    root = typer.main.get_command(app)
    for page in set(MARKDOWN) - {ROOT / "CHANGELOG.md"}:
        for line in COMMAND.findall(page.read_text()):
            command, words = root, re.split(r"[\s=]+", line)
            for word in words:
                below = getattr(command, "commands", {})
                if word in below:
                    command = below[word]
                elif word.startswith("--"):
                    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
                    assert word.rstrip("].,") in options, f"{page.name}: elanus {line}"
                else:
                    assert not below or not word.isalpha(), f"{page.name}: elanus {line}"


def test_make_targets_named_in_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in MARKDOWN:
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, f"{page.name}: {named - targets}"


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == __version__
