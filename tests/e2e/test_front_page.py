"""The promises of the README: the demo runs to its end, the example prints what is said of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from spark_classes import lend

from elanus.demo.run import run
from elanus.demo.server import DemoServer

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.jvm]


def test_the_demo_ends_with_its_picture(tmp_path: Path) -> None:
    lend(tmp_path / "data" / "scratch")
    picture = run(data_dir=tmp_path / "data", out=tmp_path / "out")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_example_finds_the_row_itself(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lend(tmp_path / "data" / "scratch")
    with DemoServer(tmp_path / "data") as server:
        code = example.replace("http://127.0.0.1:19530", server.start())
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    hits = re.findall(r"\((\d+), (\d\.\d+)\)", done.stdout)
    assert hits[0] == ("8", "1.0")
    assert [int(key) % 4 for key, _ in hits] == [0, 0, 0]
