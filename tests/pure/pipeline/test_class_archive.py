"""The archive of Java classes: for which Java and Spark it is, and when one is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from elanus.pipeline.class_archive import ClassArchive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A runtime with the archive of its own classes."""
    for part in ("bin/java", "lib/server/classes.jsa"):
        path = tmp_path / "runtime" / part
        path.parent.mkdir(parents=True)
        path.write_text("one")
    return tmp_path / "runtime" / "bin" / "java"


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_text("one")
    return tmp_path / "spark"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "the scratch").mkdir()
    return tmp_path / "the scratch"


def test_it_is_read_once_it_is_complete(java: Path, spark: Path, scratch: Path) -> None:
    archive = ClassArchive(scratch, java, spark)
    assert (archive.is_possible, archive.is_there, archive.reading()) == (True, False, "")
    assert f'-XX:ArchiveClassesAtExit="{archive.unfinished}"' in archive.writing(), "a path with a space"
    archive.unfinished.write_text("classes")
    assert archive.reading() == "", "a JVM may be killed while it writes"
    assert archive.complete()
    assert f'-XX:SharedArchiveFile="{archive.path}"' in ClassArchive(scratch, java, spark).reading()
    archive.discard()
    assert archive.reading() == ""


def test_a_jvm_that_wrote_nothing_leaves_no_archive(java: Path, spark: Path, scratch: Path) -> None:
    archive = ClassArchive(scratch, java, spark)
    assert not archive.complete()
    assert not archive.is_there


@pytest.mark.parametrize("changed", ["java", "base", "jar", "new jar"])
def test_another_java_or_spark_has_another_and_removes_the_old_one(
    java: Path, spark: Path, scratch: Path, changed: str
) -> None:
    old = ClassArchive(scratch, java, spark)
    for path in (old.path, old.unfinished):
        path.write_text("classes")
    other = {
        "java": java,
        "base": java.parents[1] / "lib" / "server" / "classes.jsa",
        "jar": spark / "jars" / "spark-core.jar",
        "new jar": spark / "jars" / "spark-sql.jar",
    }
    other[changed].write_text("another")
    new = ClassArchive(scratch, java, spark)
    assert not new.is_there
    new.clear()
    assert list(scratch.iterdir()) == []


def test_the_present_one_is_not_removed(java: Path, spark: Path, scratch: Path) -> None:
    archive = ClassArchive(scratch, java, spark)
    archive.path.write_text("classes")
    archive.unfinished.write_text("what a killed JVM left")
    archive.clear()
    assert list(scratch.iterdir()) == [archive.path]


def test_a_runtime_without_its_own_archive_cannot_have_one(java: Path, spark: Path, scratch: Path) -> None:
    (java.parents[1] / "lib" / "server" / "classes.jsa").unlink()
    assert not ClassArchive(scratch, java, spark).is_possible
