"""The page about Spark, run as it stands, and a frame that keeps its version."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Server
from pymilvus import MilvusClient
from pyspark.sql import SparkSession

from elanus.pipeline.session import PipelineSession, SparkSettings

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
pytestmark = [pytest.mark.e2e, pytest.mark.jvm]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = dict(os.environ)
    session = PipelineSession.start(
        SparkSettings(master="local[2]", driver_memory_mb=512), tmp_path_factory.mktemp("spark")
    )
    yield session.spark
    session.stop()
    os.environ.clear()
    os.environ.update(before)


def frame(spark: SparkSession, server: Server, name: str, **options: str) -> Any:
    return spark.read.format("elanus").options(uri=server.uri, collection=name, **options).load()


@pytest.mark.filterwarnings("ignore::pymilvus.decorators.PyMilvusDeprecationWarning")
def test_the_page_and_a_version_that_stays(
    shared: Server, client: MilvusClient, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"spark": spark, "import_directory": shared.data_dir / "import"}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(example.replace("http://127.0.0.1:19530", shared.uri), names)
    shown = capsys.readouterr().out
    assert shown.startswith("Completed 10000 \n")
    assert "|-- vector: array (nullable = false)" in shown
    assert shown.endswith("\n10000\n3.0 14\n")

    docs = names["docs"]
    client.delete("docs", ids=[3, 4])
    client.insert("docs", [{"id": 70_000, "vector": [0.0] * 4, "color": "new"}])
    assert docs.count() == 10_000, "every action reads the version of the load"
    now = frame(spark, shared, "docs", columns="id")
    assert now.where("id in (3, 4, 5, 70000)").orderBy("id").collect() == [(5,), (70_000,)]
    assert now.count() == 9999
    with pytest.raises(Exception, match="collection not found"):
        frame(spark, shared, "nothing")
