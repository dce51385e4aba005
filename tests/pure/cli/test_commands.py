"""The commands as typed: exit codes, messages, and what they ask of the server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from elanus import __version__
from elanus.api.gc import Finding, GcReport, GcState, GcStatus, PinnedSegment
from elanus.api.pipeline import SparkState
from elanus.cli import INTERRUPTED, main
from elanus.cli.app import app
from elanus.cli.pages import pages
from elanus.cli.status import jobs_table
from elanus.core.errors import InvalidParameter, JobNotFound, NotCancellable
from elanus.core.gc import Verdict
from elanus.core.ids import SegmentID
from elanus.core.jobs import JobKind
from elanus.metrics import Metrics
from elanus.server.announce import Announcement, announce
from elanus.server.http_port import Health, ObservePort
from elanus.server.settings import MetricsSettings, Settings
from elanus.server.status import (
    ChannelStatus,
    CollectionStatus,
    JobStatus,
    PipelineStatus,
    ResourceGroup,
    RoleStatus,
    Status,
)

JOB = JobStatus(
    "41",
    "flush",
    "running",
    "idle",
    "2026-01-01T00:00:00Z",
    1500.0,
    10_000,
    31_400_000,
    waiting=["2 flush calls"],
    percent=50.0,
    tasks=4,
    tasks_done=2,
    inputs=["ch0", "ch1"],
    input_count=7,
    ui_url="http://127.0.0.1:4040/jobs/job/?id=3",
)
ENDED = JobStatus(
    "40",
    "index build",
    "failed",
    "segment 7 is flushed",
    "2026-01-01T00:00:00Z",
    90_000.0,
    0,
    0,
    ended="2026-01-01T00:01:30Z",
    error="DiskFull: no room",
)
STATUS = Status(
    version="9.9",
    uptime_s=90.0,
    loop_lag_ms=250.0,
    roles=[
        RoleStatus("querynode", "Abnormal", "out of memory"),
        RoleStatus("datanode 1007", "Healthy", "10.0.0.7:4100"),
    ],
    channels=[
        ChannelStatus(
            "by-dev-rootcoord-dml_0",
            462_000_000_000_000_000,
            5000.0,
            2_500_000,
            3,
            1007,
            4,
            refusal="nothing is written to it",
        )
    ],
    collections=[
        CollectionStatus(
            "default",
            "digits",
            100,
            10_000,
            {"Growing": 1, "Flushed": 3, "Importing": 2},
            collection_id=440000000000010005,
        )
    ],
    jobs=[JOB],
    pipeline=PipelineStatus("Healthy", 4711, 2),
    resource_groups=[ResourceGroup("__default", [3], 0, 0), ResourceGroup("fast", [21, 22], 5, 1)],
)


class FakeServer:
    broken = False

    def __init__(self) -> None:
        self.rounds: list[GcReport] = []

    def health(self) -> Health:
        return Health(True, True, STATUS.roles)

    def status(self) -> Status:
        return STATUS

    def restart_role(self, role: str) -> None:
        if role != "querynode":
            raise InvalidParameter(f"there is no role {role}")

    def jobs(self) -> list[JobStatus]:
        return [ENDED, JOB]

    def job(self, job_id: str) -> JobStatus:
        for job in self.jobs():
            if job.job_id == job_id:
                return job
        raise JobNotFound(f"no job {job_id}")

    def garbage(self) -> GcStatus:
        report = None if not self.rounds else self.rounds[-1]
        return GcStatus(GcState.IDLE, (), len(self.rounds), 0, 0, report)

    def collect_garbage(self, *, delete: bool) -> None:
        gone = Finding("insert_log", Verdict.DROPPED, 2, 3_000_000, ("insert_log/1/2/7/a1-x.parquet",))
        stays = Finding("insert_log", Verdict.NAMED, 9, 9_000, ("insert_log/1/2/8/a2-x.parquet",))
        pinned = PinnedSegment(
            SegmentID(440000000000010099), 440000000000010005, 1000, 0, 86_400_000, "a query node"
        )
        error = "the pipeline is down" if self.broken else ""
        self.rounds.append(GcReport(0, 1500, delete, "elanus gc", (gone, stays), (pinned,), 1, 0, error))

    def cancel_job(self, job_id: str) -> None:
        if self.job(job_id).ended:
            raise NotCancellable(f"job {job_id} has ended")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a running server."""
    port = ObservePort(MetricsSettings(port=0), Metrics().registry, FakeServer())
    announce(tmp_path, Announcement(version="9.9", pid=1, address="127.0.0.1:1", observe_url=port.url))
    yield tmp_path
    port.close()


def elanus(*arguments: object) -> Result:
    # wide enough that no table is folded
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version(asked: str) -> None:
    result = elanus(asked)
    assert (result.exit_code, result.output.strip()) == (0, __version__)


def test_settings_printed_are_settings_taken(tmp_path: Path) -> None:
    first = elanus("settings", "--data-dir", "here", "--set", "log.fsync=false")
    content = yaml.safe_load(first.output)
    assert Settings.model_validate(content) == Settings(data_dir=Path("here"), log={"fsync": False})
    file = tmp_path / "elanus.yaml"
    file.write_text(first.output)
    assert elanus("settings", "--config", file).output == first.output


@pytest.mark.parametrize("command", ["settings", "serve"])
def test_wrong_settings_are_named_and_end_with_2(command: str) -> None:
    result = elanus(command, "--set", "proxy.prot=1", "--set", "colour=red")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "command line: unknown setting proxy.prot; did you mean proxy.port?",
        "command line: unknown setting colour (all settings: `elanus settings`)",
    ]


@pytest.mark.parametrize("command", ["serve", "run rootcoord", "settings", "status", "slow", "demo"])
def test_an_empty_data_directory_is_refused_and_not_taken_for_the_current_one(command: str) -> None:
    """As in ``--data-dir "$DATA"``, where the variable is not set."""
    for empty in (("--data-dir", ""), ("--data-dir=",)):
        result = elanus(*command.split(), *empty)
        assert result.exit_code == 2
        assert "--data-dir" in result.stderr
        assert "it is empty: name a directory, or . for the current one" in result.stderr
    assert elanus("dev-cluster", "--dir", "").exit_code == 2


def test_help_shows_each_command_under_a_heading_and_every_word() -> None:
    """Rich takes ``[word]`` for a style and leaves it out."""
    shown = elanus("--help").output
    assert shown.index("Run a server") < shown.index(" serve ") < shown.index("Inspect a server")
    assert " Commands " not in shown, "a command has no heading"
    assert re.findall(r"\[\w.*", pages()["cli.md"]) == []


def test_an_assignment_without_a_value_is_misuse() -> None:
    result = elanus("settings", "--set", "proxy.port")
    assert result.exit_code == 2
    assert "write it as NAME=VALUE" in result.stderr


def test_status_shows_every_part_of_the_answer(running: Path) -> None:
    result = elanus("status", "--wide", "--data-dir", running)
    assert result.exit_code == 0
    for part in (
        "elanus 9.9, up 1.5 min, event loop up to 250 ms late",
        "out of memory",
        "pid 4711, 2 restarts",
        "by-dev-rootcoord-dml_0",
        "5000ms",
        "2.5MB",
        "462000000000000000",
        "default.digits",
        "10000",
        "100%",
        "21,22",
        "idle",
        "31.4MB",
        "4 log entries in quarantine",
        "nothing is written to it",
    ):
        assert part in result.output, part


def table_of(output: str, title: str) -> list[dict[str, str]]:
    """A table as ``awk`` sees it: words between spaces, by the name of the column."""
    lines = output[output.index(title + "\n") :].split("\n\n")[0].splitlines()[1:]
    names = lines[0].split()
    return [dict(zip(names, line.split(maxsplit=len(names) - 1), strict=True)) for line in lines[1:]]


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_status_has_whole_names_in_columns_whatever_the_width(running: Path, columns: str) -> None:
    command = ["status", "--data-dir", str(running)]
    output = CliRunner().invoke(app, command, env={"COLUMNS": columns}).output
    assert table_of(output, "ROLES") == [
        {"role": "querynode", "id": "-", "state": "Abnormal", "detail": "out of memory"},
        {"role": "datanode", "id": "1007", "state": "Healthy", "detail": "10.0.0.7:4100"},
    ]
    (channel,) = table_of(output, "CHANNELS")
    assert channel == {
        "pchannel": "by-dev-rootcoord-dml_0",
        "lag": "5000ms",
        "log": "2.5MB",
        "vchannels": "3",
        "data_node": "1007",
    }
    (collection,) = table_of(output, "COLLECTIONS")
    assert collection == {
        "collection": "default.digits",
        "rows": "10000",
        "loaded": "100%",
        "growing": "1",
        "sealed": "0",
        "flushed": "3",
    }
    assert [group["nodes"] for group in table_of(output, "RESOURCE GROUPS")] == ["3", "21,22"]
    assert all(character.isascii() for character in output)
    assert max(map(len, output.splitlines())) <= 80


def test_the_columns_of_status_do_not_depend_on_what_is_there(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(output: str) -> list[str]:
        lines = output.splitlines()
        return [" ".join(lines[at + 1].split()) for at, line in enumerate(lines) if line.isupper()]

    full = names(elanus("status", "--wide", "--data-dir", running).output)
    empty = Status("9.9", 1.0, [], [], [], [], PipelineStatus("Disabled", None, 0))
    monkeypatch.setattr(FakeServer, "status", lambda _self: empty)
    assert names(elanus("status", "--wide", "--data-dir", running).output) == full
    assert full[2] == "collection rows loaded growing sealed flushed flushing dropped importing"


def test_status_shows_that_spark_sleeps(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = PipelineStatus("Healthy", None, 0, SparkState.ASLEEP)
    status = Status("9.9", 1.0, [], [], [], [], asleep)
    monkeypatch.setattr(FakeServer, "status", lambda _self: status)
    shown = elanus("status", "--data-dir", running).output
    assert "pipeline: Healthy, no process, 0 restarts, Spark asleep\n" in shown


def test_status_as_json_is_the_answer_itself(running: Path) -> None:
    result = elanus("status", "--data-dir", running, "--json")
    assert json.loads(result.output)["jobs"][0]["job_id"] == "41"


def test_doctor_shows_what_it_finds_and_its_exit_code_says_so(running: Path, tmp_path: Path) -> None:
    result = elanus("doctor", "--data-dir", running)
    assert result.exit_code == 3
    assert "critical: the role querynode does not serve (role-not-serving)\n" in result.output
    assert "  evidence: state Abnormal, out of memory\n" in result.output
    found = json.loads(elanus("doctor", "--data-dir", running, "--json").output)
    assert {"channel-rewound", "entries-in-quarantine", "nodes-missing", "role-not-serving"} == {
        one["rule"] for one in found
    }
    assert set(found[0]) == {"severity", "finding", "evidence", "remedy", "since", "rule"}
    kept = tmp_path / "status.json"
    kept.write_text(elanus("status", "--data-dir", running, "--json").output)
    assert elanus("doctor", "--status", kept).output == result.output


def test_doctor_finds_nothing_in_a_healthy_server(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = Status("9.9", 90.0, [], [], [], [], PipelineStatus("Healthy", 4711, 0))
    monkeypatch.setattr(FakeServer, "status", lambda _self: healthy)
    result = elanus("doctor", "--data-dir", running)
    assert (result.exit_code, result.output.startswith("nothing found by ")) == (0, True)
    assert elanus("doctor", "--data-dir", running, "--json").output == "[]\n"


def test_doctor_that_cannot_look_is_not_a_finding(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    for arguments in (["--data-dir", tmp_path], ["--status", tmp_path / "none"], ["--status", other]):
        assert elanus("doctor", *arguments).exit_code == 1


def test_estimate_of_a_server_without_builds_says_so() -> None:
    port = ObservePort(MetricsSettings(port=0), Metrics().registry, FakeServer())
    try:
        shown = elanus("estimate", "--rows", 1_000_000, "--dim", 128, "--url", port.url).output
        assert "on one core, with no long build of this server known" in shown
    finally:
        port.close()


def test_estimate_takes_the_speed_of_a_servers_own_builds(tmp_path: Path) -> None:
    class Built(FakeServer):
        def jobs(self) -> list[JobStatus]:
            done = replace(ENDED, state="finished", error="", index_type="HNSW", planned_s=900.0)
            return [ENDED, done, replace(done, state="lost"), JOB]

    port = ObservePort(MetricsSettings(port=0), Metrics().registry, Built())
    try:
        asked = ("estimate", "--rows", 1_000_000, "--dim", 128, "--index", "HNSW")
        alone = json.loads(elanus(*asked, "--json").output)["build_s"]
        shown = elanus(*asked, "--url", port.url).output
        assert json.loads(elanus(*asked, "--json", "--url", port.url).output)["build_s"] == pytest.approx(
            alone / 10, abs=0.1
        )
        assert "s one after the other, by 1 build of this server" in shown
        other = elanus(*asked[:-1], "DISKANN", "--url", port.url).output
        assert "one after the other, by 1 build of this server" in other, (
            "of another type, for lack of its own"
        )
    finally:
        port.close()
    assert elanus(*asked, "--data-dir", tmp_path).exit_code == 1


def test_status_without_a_server_says_so(tmp_path: Path) -> None:
    result = elanus("status", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "no server is running on" in result.stderr


def test_status_of_a_server_that_was_killed_says_so(tmp_path: Path) -> None:
    gone = ObservePort(MetricsSettings(port=0), Metrics().registry, FakeServer())
    announce(tmp_path, Announcement(version="9.9", pid=1, address="127.0.0.1:1", observe_url=gone.url))
    gone.close()
    result = elanus("status", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "is `elanus serve` running?" in result.stderr


def test_a_role_is_restarted_by_name(running: Path) -> None:
    assert elanus("restart-role", "querynode", "--data-dir", running).exit_code == 0
    result = elanus("restart-role", "nobody", "--data-dir", running)
    assert result.exit_code == 1
    assert result.stderr == "there is no role nobody\n"


def test_the_demo_names_the_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elanus.cli.development_commands.find_spec", lambda name: None)
    result = elanus("demo")
    assert result.exit_code == 1
    assert "pip install 'elanus[demo]'" in result.output


def test_the_demo_names_what_it_cannot_read(tmp_path: Path) -> None:
    result = elanus("demo", "--data", tmp_path / "none.npz")
    assert result.exit_code == 1
    assert "none.npz" in result.stderr


def test_the_command_line_loads_no_heavy_library() -> None:
    """An obstacle that `elanus serve` waits for before it starts."""
    heavy = "{'grpc', 'numpy', 'pyarrow', 'pymilvus', 'pyspark', 'faiss', 'pydantic', 'matplotlib'}"
    code = f"import sys, elanus.cli.app; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_jobs_are_a_table_or_json(running: Path) -> None:
    failed, ours = table_of(elanus("jobs", "--wide", "--data-dir", str(running)).stdout, "JOBS")
    assert failed["cause"] == "segment 7 is flushed; DiskFull: no room"
    assert (failed["kind"], failed["took"], failed["done"]) == ("index_build", "1.5min", "-")
    assert (ours["job"], ours["size"], ours["done"], ours["cause"]) == ("41", "31.4MB", "50%", "idle")
    assert failed["started"] == "2026-01-01T00:00"
    (job,) = json.loads(elanus("jobs", "--json", "--latest", "1", "--data-dir", str(running)).stdout)
    assert (job["job_id"], job["tasks_done"], job["waiting"]) == ("41", 2, ["2 flush calls"])


def test_jobs_with_the_longest_of_ids_fit_into_80_columns() -> None:
    longest = max((kind.value.replace(" ", "-") for kind in JobKind), key=len)
    started = "2026-01-01T00:00:00.000+00:00"
    job = JobStatus(f"{longest}-{'0' * 12}", longest, "cancelled", "", started, 3e6, 10**8 - 1, 10**9)
    shown = jobs_table([job]).plain
    assert job.job_id in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_history_of_a_job_shows_cause_inputs_and_progress(running: Path) -> None:
    story = elanus("jobs", "show", "41", "--data-dir", str(running)).stdout
    for text in (
        "ordered: idle",
        "by 2 flush calls",
        "reads ch1",
        "reads 5 more",
        "50 %, 2 of 4 tasks",
        ":4040/",
    ):
        assert text in story
    story = elanus("jobs", "show", "40", "--data-dir", str(running)).stdout
    assert "failed after 1.5 min" in story
    assert "DiskFull: no room" in story
    assert elanus("jobs", "show", "7", "--data-dir", str(running)).exit_code == 1


def test_a_job_is_cancelled_or_the_command_says_why_not(running: Path) -> None:
    assert elanus("jobs", "cancel", "41", "--data-dir", str(running)).stdout == "41 cancelled\n"
    refused = elanus("jobs", "cancel", "40", "--data-dir", str(running))
    assert (refused.exit_code, "job 40 has ended" in refused.stderr) == (1, True)
    unknown = elanus("jobs", "cancel", "7", "--data-dir", str(running))
    assert (unknown.exit_code, "no job 7" in unknown.stderr) == (1, True)


def test_gc_shows_what_went_and_what_stays_until_when(running: Path) -> None:
    result = elanus("gc", "--data-dir", running)
    assert result.exit_code == 0, result.output
    for expected in ("DELETED", "insert_log/1/2/7/a1-x", "3.0 MB in 2 objects reclaimed", "in use"):
        assert expected in result.output
    pinned = result.output[result.output.index("DROPPED SEGMENTS") :].splitlines()[2].split()
    assert pinned[:2] == ["440000000000010099", "default.digits"], "whole, however narrow the terminal is"
    assert pinned[4:] == ["1970-01-02_00:00:00_UTC", "a", "query", "node"]
    assert "a2-x" not in result.output


def test_gc_dry_run_says_what_would_go(running: Path) -> None:
    result = elanus("gc", "--dry-run", "--data-dir", running)
    assert result.exit_code == 0
    assert "WOULD BE DELETED" in result.output
    assert "3.0 MB in 2 objects could be reclaimed" in result.output


def test_gc_that_was_cut_off_fails(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeServer, "broken", True)
    result = elanus("gc", "--data-dir", running)
    assert result.exit_code == 1
    assert "not finished: the pipeline is down" in result.output


def test_ctrl_c_while_modules_are_loaded_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("elanus.cli.set_up_library", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == INTERRUPTED


def test_no_command_is_suggested_that_the_help_does_not_list() -> None:
    assert "Did you mean 'serve', 'version'?" in elanus("servin").output
    assert "Did you mean 'doctor'?" in elanus("doc").output
    assert elanus("pipeline", "--help").exit_code == 0, "it can be called"
