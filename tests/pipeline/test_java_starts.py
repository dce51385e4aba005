"""The Java that Spark gets: a real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from elanus.pipeline.java import java_home


@pytest.mark.jvm
def test_a_real_java_starts_without_a_warning_and_still_says_what_is_wrong(tmp_path: Path) -> None:
    java = java_home(tmp_path) / "bin" / "java"
    asked = [java, "--add-modules=jdk.incubator.vector"]
    good = subprocess.run([*asked, "-version"], capture_output=True, text=True, check=True)
    assert "WARNING" not in good.stderr + good.stdout
    bad = subprocess.run([*asked, "-XX:NoSuchOption=1", "-version"], capture_output=True, text=True)
    assert bad.returncode != 0
    assert "NoSuchOption" in bad.stderr + bad.stdout
