"""Where the programs of development services are looked for, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.devcluster import programs
from elanus.devcluster.process import ServiceFailed


def program(directory: Path, name: str) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without anything in it, and a ``PATH`` that leads to it and to one other place."""
    scripts = tmp_path / "env" / "bin"
    monkeypatch.setattr(programs.sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(programs, "_SCRIPTS", str(scripts))
    monkeypatch.setenv("PATH", f"{scripts}:{tmp_path / 'usr'}")
    monkeypatch.setattr(programs.importlib.util, "find_spec", lambda name: None)
    return tmp_path / "env"


def test_nats_is_the_packages_before_the_machines(prefix: Path, tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed, match=r"no program nats-server was found: .*make cluster"):
        programs.find_nats()
    on_path = program(tmp_path / "usr", "nats-server")
    assert programs.find_nats() == on_path
    packaged = program(prefix / "bin", "nats-server")
    assert programs.find_nats() == packaged


def test_etcd_is_the_unpacked_then_the_machines_and_never_a_wrapper(prefix: Path, tmp_path: Path) -> None:
    program(prefix / "bin", "etcd")
    with pytest.raises(ServiceFailed, match="no program etcd was found: install Debian's etcd-server"):
        programs.find_etcd()
    on_path = program(tmp_path / "usr", "etcd")
    assert programs.find_etcd() == on_path
    unpacked = program(prefix / "services" / "usr" / "bin", "etcd")
    assert programs.find_etcd() == unpacked
