"""``python -m benchmarks.worker``: serve calls on standard input until it ends."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from benchmarks.worker.commands import Command, Commands
from benchmarks.worker.engine import Vectors


def main() -> None:
    """Build the engine and answer calls."""
    answers = _take_over_stdout()
    arguments = _parse_arguments()
    commands = _commands(arguments, Vectors.open(arguments.data)).table()
    for line in sys.stdin:
        print(json.dumps(_answer(commands, json.loads(line))), file=answers, flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.npy, test.npy, buckets.npy")
    engines = parser.add_subparsers(dest="engine", required=True)
    milvus = engines.add_parser("milvus", help="pymilvus over gRPC")
    milvus.add_argument("--host", required=True)
    milvus.add_argument("--port", type=int, required=True)
    faiss = engines.add_parser("faiss", help="faiss in this process")
    faiss.add_argument("--folder", type=Path, required=True, help="where finished graphs are written")
    faiss.add_argument("--threads", type=int, required=True, help="of a build and of a batch")
    return parser.parse_args()


def _commands(arguments: argparse.Namespace, vectors: Vectors) -> Commands:
    # Imported here: an interpreter has one of the two libraries, seldom both.
    if arguments.engine == "milvus":
        from benchmarks.worker.milvus_engine import MilvusEngine
        from benchmarks.worker.server_commands import ServerCommands

        client = MilvusEngine(arguments.host, arguments.port, vectors.train.shape[1])
        return ServerCommands(client, vectors)
    from benchmarks.worker.faiss_commands import FaissCommands
    from benchmarks.worker.faiss_engine import FaissEngine

    return FaissCommands(FaissEngine(arguments.folder, vectors, arguments.threads), vectors)


def _answer(commands: Mapping[str, Command], call: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"result": commands[call["call"]](**call["arguments"])}
    except Exception as error:  # noqa: BLE001 - reported to the parent, which decides
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _take_over_stdout() -> TextIO:
    """Keep standard output for answers: what a library prints goes to standard error instead."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


if __name__ == "__main__":
    main()
