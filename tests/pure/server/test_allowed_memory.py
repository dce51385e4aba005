"""The memory that a server may take, and how much of it growing rows get."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from elanus.server.memory_limit import memory_limit_bytes, with_ample_memory, within_memory
from elanus.server.pipeline_process import end_first_without_memory
from elanus.server.settings import BackpressureSettings, DatacoordSettings, Settings
from elanus.server.settings_load import load

GB = 1 << 30


@pytest.mark.parametrize(
    ("membership", "files", "limit_bytes"),
    [
        ("0::/", {"memory.max": "1000"}, 1000),
        ("0::/system.slice/elanus.service", {"system.slice/elanus.service/memory.max": "2000"}, 2000),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "3000"}, 3000),
        ("0::/a", {"a/memory.max": "max"}, 9000),
        ("5:cpu:/x\n4:memory:/box", {"memory/box/memory.limit_in_bytes": "4000"}, 4000),
        ("4:memory:/of/the/host", {"memory/memory.limit_in_bytes": "5000"}, 5000),
        ("4:memory:/", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, 9000),
        ("", {}, 9000),
    ],
)
def test_the_limit_is_the_lowest_of_the_groups_that_the_process_is_in(
    tmp_path: Path, membership: str, files: dict[str, str], limit_bytes: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    own = tmp_path / "cgroup"
    own.write_text(membership + "\n")
    assert memory_limit_bytes(own, tmp_path, 9000) == limit_bytes


def test_without_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path / "missing", tmp_path, 7000) == 7000


@pytest.mark.parametrize(
    ("limit_bytes", "soft_mb", "hard_mb"),
    [(24 * GB, 1024, 2048), (5 * GB, 1024, 2048), (3 * GB, 512, 1024), (GB // 2, 32, 64)],
)
def test_growing_rows_get_half_of_what_spark_leaves(limit_bytes: int, soft_mb: int, hard_mb: int) -> None:
    with capture_logs() as logged:
        fitted = within_memory(Settings(), limit_bytes).backpressure
    assert (fitted.growing_soft_mb, fitted.growing_hard_mb) == (soft_mb, hard_mb)
    assert len(logged) == (hard_mb < 2048), "it says so when it lowers them"


def test_limits_that_are_lower_already_stay() -> None:
    settings = Settings(backpressure=BackpressureSettings(growing_soft_mb=100, growing_hard_mb=200))
    assert within_memory(settings, 2 * GB) is settings


@pytest.mark.parametrize(("limit_bytes", "factor"), [(12 * GB, 2), (64 * GB, 2), (12 * GB - 1, 1), (GB, 1)])
def test_segments_are_larger_where_memory_is_ample(limit_bytes: int, factor: int) -> None:
    plain, sized = Settings(), with_ample_memory(Settings(), limit_bytes)
    assert sized.datacoord.segment_size_max_mb == factor * plain.datacoord.segment_size_max_mb
    assert sized.backpressure.growing_soft_mb == factor * plain.backpressure.growing_soft_mb
    assert sized.backpressure.growing_hard_mb == factor * plain.backpressure.growing_hard_mb


def test_settings_of_a_command_count_as_chosen_only_if_they_were_given() -> None:
    of_others = load(None, {"proxy.port": "0", "datacoord.seal_age_s": "60"})
    assert with_ample_memory(of_others, 64 * GB).datacoord.segment_size_max_mb == 1024
    chosen = load(None, {"datacoord.segment_size_max_mb": "512"})
    assert with_ample_memory(chosen, 64 * GB) is chosen


@pytest.mark.parametrize(
    "settings",
    [
        Settings(datacoord=DatacoordSettings(segment_size_max_mb=512)),
        Settings(backpressure=BackpressureSettings(growing_soft_mb=1024)),
        Settings(backpressure=BackpressureSettings(growing_hard_mb=3000)),
    ],
)
def test_chosen_sizes_stay_where_memory_is_ample(settings: Settings) -> None:
    assert with_ample_memory(settings, 64 * GB) is settings


@pytest.mark.parametrize(("before", "after"), [("0\n", "800"), ("200\n", "1000"), ("900\n", "1000")])
def test_spark_ends_before_the_server_when_memory_ends(tmp_path: Path, before: str, after: str) -> None:
    score = tmp_path / "oom_score_adj"
    score.write_text(before)
    end_first_without_memory(score)
    assert score.read_text() == after


def test_a_system_without_such_scores_is_no_reason_to_fail(tmp_path: Path) -> None:
    end_first_without_memory(tmp_path / "missing" / "oom_score_adj")
