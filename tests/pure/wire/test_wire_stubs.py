"""The generated messages come without the client that carries them."""

from __future__ import annotations

import subprocess
import sys

from elanus.proxy.wire.stubs import SERVICE


def test_loading_the_messages_does_not_import_the_client() -> None:
    program = (
        "import sys; import elanus.proxy.wire.server; "
        "print(sorted({'pymilvus', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_client_may_be_imported_after_and_before() -> None:
    for first, second in (("elanus.proxy.wire.stubs", "pymilvus"), ("pymilvus", "elanus.proxy.wire.stubs")):
        program = (
            f"import {first}; import {second}; from pymilvus.grpc_gen import milvus_pb2; "
            "from elanus.proxy.wire import stubs; "
            "assert milvus_pb2.SearchRequest is stubs.milvus_pb2.SearchRequest"
        )
        subprocess.run([sys.executable, "-c", program], check=True)


def test_the_service_is_the_one_that_clients_call() -> None:
    assert SERVICE.full_name == "milvus.proto.milvus.MilvusService"
    assert {"Search", "Insert", "Connect"} <= {method.name for method in SERVICE.methods}
