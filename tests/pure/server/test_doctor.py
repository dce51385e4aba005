"""The rules of `elanus doctor`: each finds its fault, and none finds anything in a healthy status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from elanus.server.doctor import RULES, diagnose, name_of
from elanus.server.status import (
    CertificateStatus,
    ChannelStatus,
    CollectionStatus,
    GarbageStatus,
    HeldStatus,
    JobStatus,
    PipelineStatus,
    RecallStatus,
    ResourceGroup,
    Resources,
    RoleStatus,
    ServingStatus,
    Status,
)
from elanus.storage.port import StoreFailures

GB = 1 << 30
T0, T1, T2 = (f"2026-01-01T0{hour}:00:00.000+00:00" for hour in range(3))
CHANNEL = ChannelStatus("dml_0", 1 << 60, 150.0, 50 << 20, 2, 7)
COLLECTION = CollectionStatus(
    "default", "digits", 100, 3_000_000, {"Growing": 2, "Flushed": 6}, collection_id=7
)
JOB = JobStatus("40", "flush", "finished", "idle", T0, 1500.0, 10_000, 1 << 20, ordered=T0, ended=T1)
FAILED = replace(JOB, state="failed", error="OutOfMemoryError: heap\n  at ...")
RUNNING = replace(JOB, state="running", ended="", percent=50.0)
SERVING = ServingStatus(2, 4712, 1, 3, 900, 12, GB // 4, 15.0)
RESOURCES = Resources(
    growing_bytes=200 << 20,
    growing_soft_bytes=GB,
    growing_hard_bytes=2 * GB,
    memory_bytes=4 * GB,
    memory_limit_bytes=16 * GB,
    disk_free_bytes=200 * GB,
    disk_reserve_bytes=GB // 2,
    open_files=300,
    open_files_limit=4096,
    certificates=[CertificateStatus("proxy.tls_cert", "/etc/elanus/server.pem", T2, 90.0)],
)
HEALTHY = Status(
    version="9.9",
    uptime_s=3600.0,
    loop_lag_ms=12.0,
    roles=[RoleStatus("proxy", "Healthy"), RoleStatus("rootcoord 4", "Standby")],
    channels=[CHANNEL, replace(CHANNEL, pchannel="dml_1", lag_ms=1100.0)],
    collections=[COLLECTION, replace(COLLECTION, name="unloaded", loaded_percent=None)],
    jobs=[JOB, FAILED, FAILED, RUNNING, replace(RUNNING, kind="index build")],
    pipeline=PipelineStatus("Healthy", None, 1, "asleep"),
    serving=[SERVING],
    garbage=GarbageStatus(
        waiting_bytes=GB // 8,
        held=[
            HeldStatus("a reader", 7, 0, 0, T0, 3600.0),
            HeldStatus("a query node", 7, 3, GB, T0, 600.0),
            HeldStatus("a clone", 7, 3, GB, T0, 100 * 3600.0),
        ],
    ),
    resource_groups=[ResourceGroup("__default_resource_group", [3], 0, 1)],
    resources=RESOURCES,
)


def having(**resources: Any) -> dict[str, Any]:
    return {"resources": replace(RESOURCES, **resources)}


def certificate(days_left: float, setting: str = "proxy.tls_cert") -> dict[str, Any]:
    one = replace(RESOURCES.certificates[0], days_left=days_left, setting=setting)
    return having(certificates=[one])


SICK: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    # the rule and a case: what differs from the healthy status, the severity, a part of finding and evidence
    "role-not-serving": ({"roles": [RoleStatus("proxy", "Initializing")]}, "critical", "proxy"),
    "role-not-serving abnormal": (
        {"roles": [RoleStatus("querynode", "Abnormal", "no answer")]},
        "critical",
        "state Abnormal, no answer",
    ),
    "status-incomplete": ({"roles": [RoleStatus("datacoord 5", "Abnormal")]}, "warning", "datacoord 5"),
    "pipeline-down": ({"pipeline": PipelineStatus("Abnormal", None, 2)}, "critical", "no data node answers"),
    "pipeline-down hanging": ({"pipeline": PipelineStatus("Initializing", 5, 0)}, "warning", "process 5"),
    "pipeline-down disabled": ({"pipeline": PipelineStatus("Disabled", None, 0)}, "warning", "switched off"),
    "pipeline-restarts": ({"pipeline": PipelineStatus("Healthy", 5, 3)}, "warning", "3 times in 1.0 h"),
    "pipeline-restarts without Java": (
        {"pipeline": PipelineStatus("Healthy", 5, 3, cause="no Java 17 or newer")},
        "warning",
        "the last time: no Java 17 or newer",
    ),
    "loop-late": ({"loop_lag_ms": 700.0}, "warning", "700 ms"),
    "serving-processes": ({"serving": [ServingStatus(2, None, 0)]}, "warning", "do not run"),
    "serving-processes restarted": (
        {"serving": [SERVING, replace(SERVING, number=3, restarts=3)]},
        "warning",
        "process 3 started again 3 times",
    ),
    "serving-processes late": (
        {"serving": [replace(SERVING, loop_lag_ms=800.0), SERVING]},
        "warning",
        "process 2 up to 800 ms",
    ),
    "nodes-missing": ({"resource_groups": [ResourceGroup("fast", [3], 2, 1)]}, "warning", "2 missing"),
    "nodes-missing none": ({"resource_groups": [ResourceGroup("fast", [], 2, 1)]}, "critical", "fast"),
    "tick-held-back": (
        {"channels": [CHANNEL, replace(CHANNEL, pchannel="dml_5", lag_ms=9000.0)]},
        "critical",
        "held back dml_5 9.0 s",
    ),
    "tick-held-back by one": (
        {"channels": [CHANNEL, replace(CHANNEL, lag_ms=9000.0, held_by=12)]},
        "critical",
        "time ticks are held back by proxy 12",
    ),
    "tick-held-back everywhere": ({"channels": [replace(CHANNEL, lag_ms=9e3)]}, "critical", "every channel"),
    "channel-rewound": (
        {"channels": [replace(CHANNEL, lag_ms=9e9, refusal="nothing is written to dml_0")]},
        "critical",
        "nothing is written to dml_0",
    ),
    "channel-unavailable": (
        {"channels": [replace(CHANNEL, lag_ms=9e9, refusal="no acknowledgement within 30 s")]},
        "critical",
        "dml_0: no acknowledgement within 30 s",
    ),
    "clock-behind": ({"channels": [replace(CHANNEL, lag_ms=-3000.0)]}, "warning", "3.0 s ahead"),
    "channel-without-owner": ({"channels": [replace(CHANNEL, data_node=0)]}, "critical", "dml_0"),
    "entries-in-quarantine": ({"channels": [replace(CHANNEL, quarantined=4)]}, "critical", "dml_0 4"),
    "log-held": ({"channels": [replace(CHANNEL, log_bytes=9 * GB)]}, "warning", "9,216 MB in all"),
    "log-held unknown limit": (
        {"channels": [replace(CHANNEL, log_bytes=9 * GB)], "resources": None},
        "warning",
        "dml_0 9,216 MB",
    ),
    "log-unreadable": (
        {"collections": [replace(COLLECTION, unreadable_logs=["dml_0: position 7 is trimmed"])]},
        "critical",
        "dml_0: position 7 is trimmed",
    ),
    "files-unreadable": (
        {"collections": [replace(COLLECTION, unreadable=["segment 7: index/7/1 is damaged"])]},
        "critical",
        "index/7/1 is damaged",
    ),
    "load-incomplete": ({"collections": [replace(COLLECTION, loaded_percent=40)]}, "warning", "digits 40%"),
    "small-segments": (
        {"collections": [replace(COLLECTION, rows=6000, segments={"Flushed": 60})]},
        "warning",
        "60 flushed segments, 100 rows",
    ),
    "flushes-behind": (
        {"collections": [replace(COLLECTION, segments={"Sealed": 20, "Flushing": 12})]},
        "warning",
        "digits 32",
    ),
    "garbage-stuck": (
        {"garbage": GarbageStatus(error="the pipeline is down")},
        "warning",
        "pipeline is down",
    ),
    "garbage-stuck space": ({"garbage": GarbageStatus(waiting_bytes=300 * GB)}, "warning", "more space"),
    "files-held": (
        {"garbage": GarbageStatus(held=[HeldStatus("a reader", 7, 0, 0, T0, 25 * 3600.0)])},
        "warning",
        "collection default.digits reads it as of 25 h ago",
    ),
    "files-held dropped": (
        {"garbage": GarbageStatus(held=[HeldStatus("a query node", 8, 3, 5 << 20, T0, 2 * 3600.0)])},
        "warning",
        "keeps 3 segments of collection 8, 5 MB, 2.0 h after their time",
    ),
    "recall-below-target": (
        {
            "recalls": [
                RecallStatus(
                    "default.digits", "v", "HNSW", "all rows", 400, 0.7, 0.65, 0.75, 0.9, "ef 10 is too small"
                ),
                RecallStatus("default.digits", "v", "HNSW", "less than 1 %", 3, 0.7, 0.2, 0.95, 0.9),
            ]
        },
        "warning",
        "between 0.650 and 0.750 in 400 samples; ef 10 is too small",
    ),
    "jobs-fail-alike": (
        {"jobs": [FAILED, replace(FAILED, ended=T0), replace(FAILED, error="OutOfMemoryError: heap")]},
        "critical",
        "3 times: OutOfMemoryError: heap",
    ),
    "job-retried": ({"jobs": [replace(RUNNING, attempt=4)]}, "warning", "40 (flush) attempt 4"),
    "job-stuck": (
        {"jobs": [replace(RUNNING, percent=0.0, duration_ms=2 * 3.6e6)]},
        "warning",
        "40 (flush) 2.0 h",
    ),
    "index-behind": (
        {"jobs": [replace(JOB, kind="index build", state="waiting", ended="")] * 16},
        "warning",
        "16 builds",
    ),
    "growing-near-limit": (having(growing_bytes=GB), "warning", "1,024 MB growing"),
    "growing-near-limit refused": (having(growing_bytes=2 * GB), "critical", "writes are refused"),
    "memory-near-limit": (having(memory_bytes=15 * GB), "critical", "15,360 MB of 16,384 MB"),
    "disk-nearly-full": (having(disk_free_bytes=GB), "warning", "1,024 MB free"),
    "disk-nearly-full refused": (having(disk_free_bytes=GB // 4), "critical", "writes are refused"),
    "disk-nearly-full without a reserve": (
        having(disk_free_bytes=4096, disk_reserve_bytes=0),
        "critical",
        "writes are refused",
    ),
    "open-files-near-limit": (having(open_files=3000), "warning", "3000 of 4096"),
    "certificate-expiring": (certificate(12.2), "warning", "expires in 12 days"),
    "certificate-expiring expired": (certificate(-1.0), "critical", "has expired"),
    "default-password": (having(default_root_password=True), "warning", "default password"),
    "open-to-all": (having(open_to_all=True), "warning", "everybody"),
    "object-store-failing": (
        having(store_failures=StoreFailures(3, 15.0, 2.0, "503 Slow Down")),
        "critical",
        "3 requests failed since the last that was answered, the first 15 s ago, the last 2 s ago: 503",
    ),
    "log-not-synced": (having(log_synced=False), "warning", "log.fsync is false"),
}


def test_a_healthy_server_has_no_findings() -> None:
    assert diagnose(HEALTHY) == []


def test_every_rule_has_a_case() -> None:
    assert {case.partition(" ")[0] for case in SICK} == {name_of(rule) for rule in RULES}
    assert len(RULES) == len({name_of(rule) for rule in RULES})


@pytest.mark.parametrize("case", SICK)
def test_a_rule_finds_its_fault(case: str) -> None:
    different, severity, part = SICK[case]
    found = {one.rule: one for one in diagnose(replace(HEALTHY, **different))}
    one = found.pop(case.partition(" ")[0])
    assert one.severity == severity
    assert part in f"{one.finding} {one.evidence}"
    assert one.remedy
    others = {"role-not-serving", "status-incomplete"}  # a silent coordinator is both
    assert not found.keys() - others


def test_a_store_that_nobody_has_asked_since_is_not_called_failing() -> None:
    assert diagnose(replace(HEALTHY, **having(store_failures=StoreFailures(3, 900.0, 700.0, "503")))) == []


@pytest.mark.parametrize(
    ("case", "since"), [("jobs-fail-alike", T0), ("job-retried", T0), ("job-stuck", T0), ("index-behind", T0)]
)
def test_a_finding_says_since_when_if_the_status_does(case: str, since: str) -> None:
    (one,) = diagnose(replace(HEALTHY, **SICK[case][0]))
    assert one.since == since


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("proxy.tls_cert", "new connections of clients use it at once"),
        ("cluster.tls_ca", "restart the process"),
    ],
)
def test_only_certificates_between_processes_need_a_restart(setting: str, remedy: str) -> None:
    (one,) = diagnose(replace(HEALTHY, **certificate(3.0, setting)))
    assert remedy in one.remedy
    assert ("restart" in one.remedy) == setting.startswith("cluster.")


def test_a_server_that_has_just_started_may_still_be_loading() -> None:
    starting = replace(
        HEALTHY,
        uptime_s=10.0,
        roles=[RoleStatus("querynode", "Initializing")],
        pipeline=PipelineStatus("Initializing", 5, 0),
        channels=[replace(CHANNEL, data_node=0)],
        collections=[replace(COLLECTION, loaded_percent=0)],
        serving=[ServingStatus(2, None, 0)],
    )
    assert diagnose(starting) == []


def test_ticks_that_a_full_disk_holds_back_are_no_fault_of_a_proxy() -> None:
    late = replace(CHANNEL, lag_ms=9000.0, held_by=6)
    full = replace(HEALTHY, channels=[late], **having(disk_free_bytes=0, disk_reserve_bytes=0))
    found = {one.rule: one for one in diagnose(full)}
    assert found.keys() == {"disk-nearly-full", "tick-held-back"}
    assert "disk is full" in found["tick-held-back"].finding
    assert "proxy" not in found["tick-held-back"].remedy


def test_ticks_that_are_late_everywhere_may_be_the_metadatas_fault() -> None:
    """Without a further bound the timestamps stand still, and with them the ticks of all channels."""
    late = replace(CHANNEL, lag_ms=9000.0, held_by=6)
    (one,) = diagnose(replace(HEALTHY, channels=[late]))
    assert "`timestamp bound not persisted`" in one.remedy
    (one,) = diagnose(replace(HEALTHY, channels=[CHANNEL, replace(late, pchannel="dml_1")]))
    assert "metadata" not in one.remedy


def failures_on_a_full_disk() -> list[JobStatus]:
    """Each attempt writes a file of another name."""
    said = "DiskFull: no room left while writing insert_log/4/{}-7196e774.parquet; free disk space"
    return [replace(FAILED, error=said.format(n), inputs=("dml_0_4v0",), ended=T0) for n in range(3)]


def test_errors_that_name_another_file_each_time_are_the_same_error() -> None:
    (one,) = diagnose(replace(HEALTHY, jobs=failures_on_a_full_disk()))
    assert one.rule == "jobs-fail-alike"
    assert one.evidence.startswith("3 times: DiskFull: no room left while writing insert_log/4/2-7196e774")


def test_jobs_that_failed_are_no_finding_once_their_work_is_done() -> None:
    done = replace(JOB, inputs=("dml_0_4v0", "dml_0_4v1"), ended=T1)
    assert diagnose(replace(HEALTHY, jobs=[*failures_on_a_full_disk(), done])) == []
    for other in (replace(done, inputs=("dml_0_4v1",)), replace(done, kind="compaction")):
        (one,) = diagnose(replace(HEALTHY, jobs=[*failures_on_a_full_disk(), other]))
        assert one.rule == "jobs-fail-alike"


def test_critical_findings_come_first() -> None:
    sick = replace(HEALTHY, loop_lag_ms=900.0, channels=[replace(CHANNEL, quarantined=1)])
    assert [one.rule for one in diagnose(sick)] == ["entries-in-quarantine", "loop-late"]


def test_evidence_stays_short_however_much_there_is() -> None:
    channels = [replace(CHANNEL, pchannel=f"dml_{n}", lag_ms=9000.0, log_bytes=1) for n in range(500)]
    (one,) = diagnose(replace(HEALTHY, channels=channels))
    assert one.evidence.endswith("and 497 more")
    assert len(one.evidence) < 200


def test_a_status_of_an_earlier_release_lacks_figures_and_is_no_reason_to_fail() -> None:
    fields = msgspec.json.decode(msgspec.json.encode(HEALTHY))
    del fields["resources"], fields["loop_lag_ms"]
    assert diagnose(msgspec.convert(fields, Status)) == []
