"""The clients page: what programs that are not pymilvus itself can do here, found out by running them.

Each client is the released package, with a program of ours in ``clients/`` that uses it the way its users do.
The programs print checks, one JSON object a line (`clients/checks.py`): of what works, and of what the server
refuses. `make compatibility` writes ``docs/clients.md`` from them; a test compares the page with a new run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments import ROOT, locked_environment, node_environment, own_environment
from harness import Server

PAGE = ROOT / "docs" / "clients.md"
PROGRAMS = Path(__file__).with_name("clients")
PROGRAM_TIMEOUT_S = 240.0

PYMILVUS_3 = "pymilvus-3"
PYMILVUS_2 = "pymilvus-2.6"
"""Environments, by the pymilvus that the clients allow; files of that name say what is in them."""


@dataclass(frozen=True, slots=True)
class Client:
    """``package`` is its name in its registry; ``environment`` is none for a Node.js program."""

    name: str
    package: str
    version: str
    program: str
    environment: str | None
    notes: str = ""

    @property
    def link(self) -> str:
        if self.environment is None:
            return f"https://www.npmjs.com/package/{self.package}"
        return f"https://pypi.org/project/{self.package}/"


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("Node.js client", "@zilliz/milvus2-sdk-node", "3.0.6", "program_node.mjs", None),
        Client("AsyncMilvusClient", "pymilvus", "3.0.2", "program_async.py", PYMILVUS_3),
        Client("LangChain", "langchain-milvus", "0.4.0", "program_langchain.py", PYMILVUS_3),
        Client(
            "LlamaIndex",
            "llama-index-vector-stores-milvus",
            "1.2.0",
            "program_llamaindex.py",
            PYMILVUS_2,
        ),
        Client("Haystack", "milvus-haystack", "0.1.0", "program_haystack.py", PYMILVUS_3),
        Client("mem0", "mem0ai", "2.2.1", "program_mem0.py", PYMILVUS_3),
        Client(
            "milvus-cli",
            "milvus-cli",
            "1.2.1",
            "program_cli.py",
            PYMILVUS_3,
            "`insert row` fails in the client itself, with any server: it sends integers as text.",
        ),
        Client(
            "VectorDBBench",
            "vectordb-bench",
            "2.0.0",
            "program_vectordbbench.py",
            PYMILVUS_2,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Check:
    """``lacks``: the server must refuse it, and ``detail`` is its answer. ``ok``: it came out as it must."""

    title: str
    lacks: bool
    ok: bool
    detail: str


def missing() -> str:
    """Why the Node.js client cannot run here; empty if it can."""
    return "" if shutil.which("node") and shutil.which("npm") else "node and npm are not on this machine"


def install(client: Client) -> None:
    """Once for all clients of an environment."""
    _command(client)


def outcomes_of(client: Client, server: Server, home: Path) -> list[Check]:
    """The outcome of its program. ``home``: an empty directory for files of its own."""
    done = subprocess.run(
        [*_command(client), server.uri],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
        env=own_environment(home),
        cwd=home,
    )
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"title"')]
    checks = [Check(one["title"], one["kind"] == "lacks", one["ok"], one["detail"]) for one in printed]
    assert done.returncode == 0, f"after {[check.title for check in checks]}: {done.stderr[-3000:]}"
    assert any(not check.lacks for check in checks), f"no checks: {done.stderr[-3000:]}"
    return checks


def _command(client: Client) -> list[str]:
    program = PROGRAMS / client.program
    if client.environment is None:
        directory = node_environment("node", f"{client.package}@{client.version}")
        # a module looks for packages from its own place
        return ["node", shutil.copy(program, directory)]
    lock = PROGRAMS / f"{client.environment}.txt"
    assert f"{client.package}=={client.version}" in lock.read_text(encoding="utf-8").splitlines()
    return [str(locked_environment(client.environment, lock)), str(program)]


INTRODUCTION = """\
# Clients

<!-- Written by `make compatibility` from runs of the clients: edit the programs in tests/e2e/clients. -->

This page shows how programs that build on Milvus work with Elanus, each as it is released. Every line is a
check in [tests/e2e/clients](../tests/e2e/clients): the program of that client does the thing and compares
the answer. Gaps are checked, too: the server refuses it with the error that is shown. The
generations of pymilvus have [a page of their own](compatibility.md). Further programs were
[run once by hand](#run-once-by-hand).

| client | release | works | lacks |
|---|---|---|---|
"""


TRIED: Sequence[tuple[str, str, str]] = (
    (
        "pymilvus",
        "3.0.2",
        "`LocalBulkWriter` (Parquet, JSON, CSV; all types, struct arrays) and `RemoteBulkWriter` to an S3 "
        "server (Parquet, JSON, CSV, NumPy), imported with `bulk_import`, `get_import_progress`, "
        "`list_import_jobs`",
    ),
    ("adk-milvus", "0.1.0", "`MilvusMemoryService`, `MilvusVectorStore`"),
    (
        "agno",
        "3.1.10",
        "`Milvus`: vector and hybrid search, upsert, deletes, owners, the asynchronous methods. It stores "
        "metadata as a text, so its filters on metadata find nothing; its synchronous `insert` for hybrid "
        "search sends no vectors, which is refused",
    ),
    ("camel-ai", "0.2.90", "`MilvusStorage`: add, query, delete, status, clear"),
    ("chonkie", "1.7.0", "`MilvusHandshake`: write, search"),
    (
        "cognee-community-vector-adapter-milvus",
        "0.1.2",
        "an index, data points, search, batch search, delete",
    ),
    ("django-milvus", "0.1.11", "a model: create, save, bulk create, search, filters, upsert, delete"),
    ("docarray", "0.41.0", "`MilvusDocumentIndex`: index, find, batches, filter, get, delete"),
    (
        "feast",
        "0.67.0",
        "an online store: write, materialize, features by key, documents by vector and by words; its table "
        "of several documents mixes their columns, which the server answers rightly",
    ),
    ("gptcache", "0.1.44", "its vector store: add, search, delete, embeddings by key"),
    (
        "lightrag-hku",
        "1.5.7",
        "`MilvusVectorDBStorage` in a database of its own: insert, queries (naive, local, hybrid, mix), "
        "delete by entity and by document; AUTOINDEX and HNSW_SQ",
    ),
    ("memsearch", "0.4.23", "its store: upsert, hybrid search of vectors and BM25, filters, deletes"),
    ("unstructured-ingest", "1.12.0", "the uploader: check, upload, and upload again in place"),
    ("vanna", "2.0.2", "`MilvusAgentMemory`: save, search, recent, delete, clear"),
    ("vector-graph-rag", "0.4.0", "its store: entities, relations, passages, search, update, delete"),
    (
        "wmilvus",
        "0.4.5",
        "models: insert, search, ranges, filters, iterators, update, deletes; asynchronous client",
    ),
    ("yami-cli", "0.1.3", "collections, partitions, aliases, load and release, flush, compact, users"),
)
"""Programs that were run once by hand: package, release, and what was seen to work. No test runs them."""


def _tried() -> str:
    lines = [
        "\n## Run once by hand\n\n",
        "These packages worked on 2026-11-30, with embeddings that the programs computed themselves. No\n"
        "test runs them, so this table does not follow later releases.\n\n",
        "| package | release | what was run |\n|---|---|---|\n",
    ]
    for package, version, what in TRIED:
        lines.append(f"| [{package}](https://pypi.org/project/{package}/) | {version} | {what} |\n")
    return "".join(lines)


def page(outcomes: Mapping[str, Sequence[Check]]) -> str:
    """The page of these outcomes by the client's name. All checks must be ok."""
    parts = [INTRODUCTION]
    for name, checks in outcomes.items():
        client = CLIENTS[name]
        lacking = sum(check.lacks for check in checks)
        release = f"[{client.package} {client.version}]({client.link})"
        parts.append(f"| [{name}](#{anchor(name)}) | {release} | {len(checks) - lacking} | {lacking} |\n")
    for name, checks in outcomes.items():
        parts.append(_section(CLIENTS[name], checks))
    parts.append(_tried())
    return "".join(parts)


def _section(client: Client, checks: Sequence[Check]) -> str:
    parts = [f"\n## {client.name}\n\n", f"{client.notes}\n\n" if client.notes else "", "Works:\n\n"]
    parts += [f"- {check.title}\n" for check in checks if not check.lacks]
    if any(check.lacks for check in checks):
        parts.append("\n| lacks | the server's answer |\n|---|---|\n")
        parts += [f"| {check.title} | {_in_cell(check.detail)} |\n" for check in checks if check.lacks]
    return "".join(parts)


def anchor(heading: str) -> str:
    """The anchor of a heading, as renderers of Markdown make it."""
    return "".join(c for c in heading.lower() if c.isalnum() or c in " -").replace(" ", "-")


def _in_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def failures(checks: Sequence[Check]) -> dict[str, str]:
    """Title → error of the checks that are not ok."""
    return {check.title: check.detail for check in checks if not check.ok}


def main() -> None:
    outcomes: dict[str, list[Check]] = {}
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory) / "data") as server:
        server.start().wait_for_spark()
        for name, client in CLIENTS.items():
            install(client)
            # no dot in it: milvus-cli takes a path with one before a slash for a URL
            home = Path(directory) / Path(client.program).stem
            os.mkdir(home)
            outcomes[name] = outcomes_of(client, server, home)
    failed = {name: found for name, checks in outcomes.items() if (found := failures(checks))}
    if failed:
        sys.exit(f"the page is not written: {json.dumps(failed, indent=1)}")
    PAGE.write_text(page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
