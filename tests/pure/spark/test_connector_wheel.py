"""The connector's wheel: it has all that its modules import, and nothing of the server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement

CONNECTOR = Path(__file__).parents[3] / "connector"
PROJECT = tomllib.loads((CONNECTOR / "pyproject.toml").read_text())
REQUIRED = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
EXTRAS = [
    Requirement(text) for texts in PROJECT["project"]["optional-dependencies"].values() for text in texts
]
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
IMPORTED_AS = {"grpcio": "grpc", "faiss-cpu": "faiss"}
"""The names that requirements are imported as, where they differ."""
IMPORTED_BY_NAME = {"shapely"}
"""Libraries that no import statement names: `elanus.core.geometry.library`."""


def imported_name(requirement: Requirement) -> str:
    return IMPORTED_AS.get(requirement.name, requirement.name.replace("-", "_"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel, as links to the sources."""
    root = tmp_path_factory.mktemp("wheel")
    included = {**{name: name for name in WHEEL["packages"]}, **WHEEL["force-include"]}
    # packages come before files inside them
    for source, place in sorted(included.items(), key=lambda pair: len(pair[1])):
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.is_symlink():
            origin = (CONNECTOR / source).resolve(strict=True)
            if origin.is_dir() and any(other.startswith(f"{place}/") for other in included.values()):
                target.mkdir()
                for file in origin.iterdir():
                    (target / file.name).symlink_to(file)
            else:
                target.symlink_to(origin)
    return root


def modules_of(root: Path) -> set[str]:
    found = set()
    for directory, _, names in os.walk(root, followlinks=True):
        for path in (Path(directory, name) for name in names if name.endswith(".py")):
            parts = path.relative_to(root).with_suffix("").parts
            found.add(".".join(parts).removesuffix(".__init__"))
    return found


def test_the_modules_of_the_wheel_import_only_each_other_and_what_it_requires(unpacked: Path) -> None:
    graph = grimp.build_graph(
        "elanus", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    modules = modules_of(unpacked)
    assert {"elanus.spark.source", "elanus.spark.knn", "elanus.rpc.carrier"} <= modules
    imports = {(m, i) for m in modules & graph.modules for i in graph.find_modules_directly_imported_by(m)}
    left_out = {f"{m} imports {i}" for m, i in imports if i.startswith("elanus.") and i not in modules}
    assert left_out == set(), "name these in connector/pyproject.toml, or import less"
    libraries = {i for _, i in imports if i.partition(".")[0] not in {"elanus", *sys.stdlib_module_names}}
    assert libraries | IMPORTED_BY_NAME == {imported_name(r) for r in (*REQUIRED, *EXTRAS)}


def test_no_room_of_the_server_is_in_the_wheel(unpacked: Path) -> None:
    packages = {path.name for path in (unpacked / "elanus").iterdir() if path.is_dir()}
    assert packages == {"api", "core", "expr", "index", "rpc", "spark", "storage", "text"}


def test_the_tests_run_with_versions_that_the_wheel_takes() -> None:
    installed = {r.name: version(r.name) for r in (*REQUIRED, *EXTRAS) if r.name != "matplotlib"}
    wrong = [str(r) for r in (*REQUIRED, *EXTRAS) if not r.specifier.contains(installed.get(r.name, "3.10"))]
    assert wrong == []
    assert not [str(r) for r in (*REQUIRED, *EXTRAS) if re.search("==", str(r))], "pins are loose"


READING = """
import pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Absent())
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import DataSource

assert "pyspark_elanus" in [module.name for module in pkgutil.iter_modules()]
from pyspark_elanus import DefaultSource
assert issubclass(DefaultSource, DataSource) and DefaultSource.name() == "elanus"
pickled = CloudPickleSerializer().dumps(DefaultSource)
assert CloudPickleSerializer().loads(pickled) is DefaultSource

import elanus.spark.change_rows, elanus.spark.changes, elanus.spark.native, elanus.spark.rows
from elanus.spark import register, table
for name in ("attach", "knn_join", "near_duplicates", "recall_report"):
    try:
        getattr(elanus.spark, name)
    except ModuleNotFoundError as error:
        assert "pip install 'pyspark-elanus[search]'" in str(error), error
    else:
        raise AssertionError(f"{name} does without faiss")
files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] in ("elanus", "pyspark_elanus")]
assert len(files) > 100
print(*{f for f in files if not f.startswith(ROOT)}, sep="\\n", end="")
"""


def test_reading_and_writing_need_no_library_of_the_server_and_no_extra(unpacked: Path) -> None:
    server = tomllib.loads((CONNECTOR.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    given = {imported_name(r) for r in REQUIRED} | {"pyspark", "pandas"}  # pandas: PySpark imports it itself
    names = {"nats-py": "nats", "argon2-cffi": "argon2", "pydantic-settings": "pydantic_settings"}
    absent = {names.get(r.name, imported_name(r)) for r in map(Requirement, server)}
    absent = (absent | {"duckdb", "pymilvus", "pydantic"}) - given - {"rich"}  # structlog tries rich
    assert {"faiss", "aetcd", "nats", "typer", "tantivy", "shapely", "starlette"} <= absent
    program = f"ABSENT = {absent!r}\nROOT = {str(unpacked)!r}\n{READING}"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "", "modules from elsewhere"
