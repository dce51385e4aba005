"""milvus-cli in ordinary use: its commands, and the answers to what they ask."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

from checks import DIM, VECTORS, check, uri
from click.testing import CliRunner
from milvus_cli.scripts.milvus_client_cli import cli
from pymilvus import MilvusClient

NAME = "cli_rows"
DIRECTORY = Path(tempfile.mkdtemp())
# the home directory holds its history of connections
RUNNER = CliRunner(env={"HOME": str(DIRECTORY), "COLUMNS": "200"})


def run(command: str, *answers: object) -> str:
    """The output of the command. An error that it shows instead of an answer is raised."""
    typed = "".join(f"{answer}\n" for answer in answers)
    done = RUNNER.invoke(cli, command.split(), input=typed)
    said = f"{done.output}{done.exception or ''}"
    if done.exit_code != 0 or "Error" in said or "MilvusException" in said:
        # of `<MilvusException: (code=…, message=…)>` the message
        raise RuntimeError(said.split("message=")[-1].split(")>")[0].strip())
    return said


@check("`connect`, `server_version`")
def _() -> None:
    assert "successfully" in run(f"connect -uri {uri()}")
    assert "Milvus server version: v" in run("server_version")


@check("`create database`, `list databases`, `use database`, `delete database`")
def _() -> None:
    run("create database -db cli_db")
    assert "cli_db" in run("list databases")
    run("use database -db cli_db")
    run("use database -db default")
    run("delete database -db cli_db --yes")
    assert "cli_db" not in run("list databases")


@check("`create collection` from a file, `list collections`, `show collection`")
def _() -> None:
    fields = [
        {"name": "id", "type": "INT64", "is_primary": True},
        {"name": "kind", "type": "VARCHAR", "max_length": 10},
        {"name": "v", "type": "FLOAT_VECTOR", "dim": DIM},
    ]
    schema = DIRECTORY / "schema.json"
    schema.write_text(json.dumps({"collection_name": NAME, "fields": fields}), encoding="utf-8")
    assert "Create collection successfully!" in run(f"create collection --schema-file {schema}")
    assert NAME in run("list collections")
    shown = run(f"show collection -c {NAME}")
    assert "*id" in shown
    assert f"dim: {DIM}" in shown


@check("`create index`, `list indexes`, `show index`")
def _() -> None:
    # the command asks for a name of the index and does not send it: the index has the field's
    run("create index", NAME, "v", "ignored", "HNSW", "L2", 8, 64)
    assert "HNSW" in run(f"list indexes -c {NAME}")
    assert "HNSW" in run(f"show index -c {NAME} -in v")


@check("`load collection`, `show load_state`, `show loading_progress`")
def _() -> None:
    run(f"load collection -c {NAME}")
    assert "Loaded" in run(f"show load_state -c {NAME}")
    assert "100" in run(f"show loading_progress -c {NAME}")


@check("`insert file` (CSV), `flush`, `show collection_stats`")
def _() -> None:
    path = DIRECTORY / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as opened:
        rows = csv.writer(opened)
        rows.writerow(["id", "kind", "v"])
        # each cell is JSON, strings too
        rows.writerows([[n, json.dumps("odd" if n % 2 else "even"), VECTORS[n]] for n in range(21)])
    run(f"insert file -c {NAME} {path}")
    run(f"flush -c {NAME}")
    assert "21" in run(f"show collection_stats -c {NAME}")


@check("`query`, `get`, `search` with a parameter")
def _() -> None:
    found = run("query", NAME, "id in [3, 4]", "", "id,kind", "", 0, 5)
    assert "odd" in found
    assert "even" in found
    assert "even" in run("get", NAME, "[20]", "kind")
    found = run("search", NAME, "v", VECTORS[7], 32, "", -1, 1, "", "", "id,kind", 0)
    assert "| 7 |" in " ".join(found.split())


@check("`upsert row`, `delete ids`, `delete entities`")
def _() -> None:
    run("upsert row", NAME, "_default", 0, "new", VECTORS[0])
    assert "new" in run("get", NAME, "[0]", "kind")
    run(f"delete ids -c {NAME}", "[1, 2]", "y")
    run(f"delete entities -c {NAME}", "id in [4]", "y")
    assert "No results" in run("get", NAME, "[1, 2, 4]", "kind")


@check("`compact`, `show compaction_state`")
def _() -> None:
    said = run(f"compact -c {NAME}")
    job = "".join(letter for letter in said.split(":")[-1] if letter.isdigit())
    assert "Executing" in (state := run(f"show compaction_state -id {job}")) or "Completed" in state


@check("`create partition`, `list partitions`, `delete partition`")
def _() -> None:
    run(f"create partition -c {NAME} -p part")
    assert "part" in run(f"list partitions -c {NAME}")
    run(f"release partition -c {NAME} -p part")
    run(f"delete partition -c {NAME} -p part")


@check("`create alias`, `show alias`, `delete alias`, `rename collection`")
def _() -> None:
    run(f"create alias -c {NAME} -a cli_alias")
    assert NAME in run("show alias -a cli_alias")
    run("delete alias -a cli_alias", "y")
    run(f"rename collection -old {NAME} -new cli_other")
    assert "cli_other" in run("list collections")
    run(f"rename collection -old cli_other -new {NAME}")


@check("`list users`, `list roles`")
def _() -> None:
    assert "root" in run("list users")
    assert "admin" in run("list roles")


@check("`create user`")
def _() -> None:
    run("create user -u cli_ann -p password")
    assert "cli_ann" in run("list users")
    MilvusClient(uri()).drop_user("cli_ann")


@check("`truncate`")
def _() -> None:
    run(f"truncate -c {NAME} --yes")


@check("`release collection`, `delete index`, `delete collection`")
def _() -> None:
    run(f"release collection -c {NAME}")
    run(f"delete index -c {NAME} -in v", "y")
    run(f"delete collection -c {NAME} --yes")
    assert NAME not in run("list collections")
