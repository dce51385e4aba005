"""Run the connector's wheel on several releases of Spark, with and without Spark Connect, and print a table.

``make connector``; `test_connector` runs the oldest and the newest release. Needs the package index: the
wheel is built and installed as a user's pip would, next to each release of PySpark and the newest libraries
that the wheel takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from environments import ROOT, python_environment
from harness import Server
from pymilvus import MilvusClient

RELEASES = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
CONNECT = "local[2]"
"""A session of Spark Connect starts a server, and connects to it."""
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM that lives for a minute takes a third less processor time with these options."""


def build(directory: Path) -> Path:
    source = ROOT / "connector"
    uv = (sys.executable, "-m", "uv", "--quiet")
    subprocess.run([*uv, "build", "--wheel", "--out-dir", str(directory), str(source)], check=True)
    return next(directory.glob("*.whl"))


def environment(release: str, wheel: Path) -> Path:
    """The Python of an environment with this release and this wheel. Spark, which is large, stays in it."""
    python = python_environment(f"spark-{release}", f"pyspark[connect]=={release}", "pandas<3")
    install = (sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", str(python))
    mine = ("--reinstall-package", "pyspark-elanus", f"pyspark-elanus[search] @ {wheel.as_uri()}")
    subprocess.run([*install, *mine], check=True)
    return python


def run(release: str, python: Path, server: Server, files: Path, *remote: str) -> dict[str, str]:
    """Run the program with that Python. Returns what came of each step: "yes", or an error's text."""
    name = f"c{release.replace('.', '')}{'connect' if remote else ''}"
    client = MilvusClient(server.uri)
    client.create_collection(name, dimension=4, metric_type="L2")
    rows = [{"id": i, "vector": [i, 1, 2, 3], "color": ("blue", "red")[i % 2]} for i in range(1000)]
    client.insert(name, rows)
    client.close()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK"))}
    ran = subprocess.run(
        [
            str(python),
            str(Path(__file__).with_name("connector_program.py")),
            server.uri,
            name,
            str(files),
            *remote,
        ],
        env=environment | {"PYSPARK_PYTHON": str(python), "JAVA_TOOL_OPTIONS": _QUICK_JVM},
        cwd=files,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    outcomes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch, Server(Path(scratch) / "data") as server:
        wheel = build(Path(scratch))
        server.start().wait_for_spark()
        for release in sys.argv[1:] or RELEASES:
            for remote in ((), (CONNECT,)):
                title = f"{release}{' Connect' if remote else ''}"
                files = Path(scratch) / title.replace(" ", "-")
                files.mkdir()
                outcomes[title] = run(release, environment(release, wheel), server, files, *remote)
                show(f"{title} {json.dumps(outcomes[title], indent=1)}")
    show("|" + "|".join(["", *outcomes]) + "|")
    for step in next(iter(outcomes.values())):
        show("|" + "|".join([step, *("yes" if o[step] == "yes" else "no" for o in outcomes.values())]) + "|")


if __name__ == "__main__":
    main()
