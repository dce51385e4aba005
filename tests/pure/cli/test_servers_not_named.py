"""Commands that name no server: one that listens at the default address may be anybody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elanus.api.gc import GcReport, GcState, GcStatus
from elanus.cli.app import app
from elanus.metrics import Metrics
from elanus.server.announce import Announcement, announce
from elanus.server.http_port import Health, ObservePort
from elanus.server.settings import MetricsSettings
from elanus.server.status import JobStatus, PipelineStatus, Status

STATUS = Status(
    version="9.9",
    uptime_s=90.0,
    loop_lag_ms=0.0,
    roles=[],
    channels=[],
    collections=[],
    jobs=[],
    pipeline=PipelineStatus("Healthy", 4711, 2),
    resource_groups=[],
)


class OtherServer:
    """A server that is not the user's. ``changes``: those that were requested."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.rounds: list[GcReport] = []

    def health(self) -> Health:
        return Health(True, True, [])

    def status(self) -> Status:
        return STATUS

    def jobs(self) -> list[JobStatus]:
        return []

    def restart_role(self, role: str) -> None:
        self.changes.append(role)

    def cancel_job(self, job_id: str) -> None:
        self.changes.append(job_id)

    def garbage(self) -> GcStatus:
        return GcStatus(GcState.IDLE, (), len(self.rounds), 0, 0, self.rounds[-1] if self.rounds else None)

    def collect_garbage(self, *, delete: bool) -> None:
        if delete:
            self.changes.append("gc")
        self.rounds.append(GcReport(0, 1, delete, "elanus gc", (), (), 0, 0))


@pytest.fixture
def other() -> OtherServer:
    return OtherServer()


@pytest.fixture
def url(other: OtherServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address, which is that of the settings; the current directory has no server."""
    port = ObservePort(MetricsSettings(port=0), Metrics().registry, other)  # type: ignore[arg-type]
    monkeypatch.setenv("ELANUS_METRICS__PORT", port.url.rpartition(":")[2])
    monkeypatch.chdir(tmp_path)
    yield port.url
    port.close()


CHANGES = (["gc"], ["restart-role", "querynode"], ["jobs", "cancel", "41"])


@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
def test_a_server_that_nobody_named_is_not_changed(url: str, other: OtherServer, command: list[str]) -> None:
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "no server is running on elanus-data" in refused.stderr
    assert "--url" in refused.stderr
    assert other.changes == []


@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
def test_a_server_that_is_named_or_of_the_default_directory_is_changed(
    url: str, other: OtherServer, tmp_path: Path, command: list[str]
) -> None:
    assert CliRunner().invoke(app, [*command, "--url", url]).exit_code == 0
    (tmp_path / "elanus-data").mkdir()
    announce(
        tmp_path / "elanus-data", Announcement(version="1", pid=1, address="127.0.0.1:1", observe_url=url)
    )
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(other.changes) == 2


@pytest.mark.parametrize("command", [["status"], ["jobs"], ["gc", "--dry-run"]], ids=" ".join)
def test_what_is_shown_of_a_server_that_nobody_named_says_which_one_it_is(
    url: str, other: OtherServer, command: list[str]
) -> None:
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert f"no server is running on elanus-data: this is about the one at {url}" in shown.stderr
    assert other.changes == []
