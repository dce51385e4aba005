"""`elanus estimate` without a server: what it prints, and what is misuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from elanus.cli.app import app


def elanus(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_estimate_needs_no_server_and_shows_each_total() -> None:
    result = elanus("estimate", "--rows", 1_000_000, "--dim", 128, "--index", "hnsw", "--param", "M=8")
    assert result.exit_code == 0
    assert result.output == (
        "1,000,000 rows of FLOAT_VECTOR of 128 dimensions in 2 segments\n"
        "index: HNSW, COSINE, M=8, efConstruction=200\n"
        "memory to load: 1.2 GB in all query nodes, replicas: 1\n"
        "memory of the index: 649.3 MB in each replica\n"
        "object store: 1.2 GB (536.0 MB of rows, 649.3 MB of index files)\n"
        "index builds: 3.7 min one after the other, on one core, with no server asked\n"
    )
    smaller = ("--dim", 128, "--set", "datacoord.segment_size_max_mb=64", "--json")
    found = json.loads(elanus("estimate", "--rows", 1_000_000, *smaller).output)
    assert found["segments"] == 11
    assert found["insert_log_bytes"] == 536_000_000


def test_the_page_shows_what_its_first_command_prints() -> None:
    page = (Path(__file__).parents[3] / "docs" / "estimate.md").read_text()
    command = re.findall(r"^elanus (estimate .+)$", page, re.MULTILINE)[0]
    (printed,) = re.findall(r"```text\n(.+?)```", page, re.DOTALL)
    assert elanus(*command.split()).output == printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--type", "INT8", "--dim", 8], "use one of FLOAT_VECTOR, "),
        (["--dim", 0], "say the dimension"),
        (["--dim", 8, "--param", "M"], "write it as NAME=VALUE"),
        (["--dim", 8, "--index", "HNSW", "--param", "M=1"], "M"),
        (["--type", "SPARSE_FLOAT_VECTOR"], "how many are not zero"),
        (["--dim", 8, "--set", "datacoord.seal_proportion=7"], "seal_proportion"),
    ],
)
def test_estimate_of_what_cannot_be_is_misuse(options: list[object], said: str) -> None:
    result = elanus("estimate", "--rows", 10, *options)
    assert result.exit_code == 2
    assert said in result.output
