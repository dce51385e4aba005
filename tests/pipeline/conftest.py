"""One Spark session for all tests of this directory; it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elanus.pipeline.session import PipelineSession
from elanus.pipeline.spark_conf import SparkSettings
from tests.e2e.spark_classes import lend


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineSession]:
    settings = SparkSettings(master="local[2]", driver_memory_mb=512)
    started = PipelineSession.start(settings, lend(tmp_path_factory.mktemp("spark")))
    started.context.addPyFile(str(Path(__file__).with_name("tasks.py")))
    yield started
    started.stop()
