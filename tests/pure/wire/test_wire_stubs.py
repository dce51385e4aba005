"""The Milvus protobufs are Milvus's own, and get along with any pymilvus in the same process."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from elanus.proxy.wire.protos import common_pb2, milvus_pb2
from elanus.proxy.wire.protos.pool import message_options
from elanus.proxy.wire.stubs import SERVICE

ROOT = Path(__file__).parents[3]
PROTOS = ROOT / "src/elanus/proxy/wire/protos"
FILES = ("common", "feder", "milvus", "msg", "rg", "schema")

ALTERED_FILES = """
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
file = FileDescriptorProto(name="common.proto", package="milvus.proto.common", syntax="proto3")
file.message_type.add(name="Status").field.add(name="other", number=1, type=9, label=1)
descriptor_pool.Default().Add(file)
file = FileDescriptorProto(name="milvus.proto", package="milvus.proto.milvus", syntax="proto3")
file.message_type.add(name="SearchRequest").field.add(name="other", number=1, type=5, label=1)
descriptor_pool.Default().Add(file)
theirs = descriptor_pool.Default().FindMessageTypeByName("milvus.proto.milvus.SearchRequest")
assert set(theirs.fields_by_name) == {"other"}
"""
"""The files of another client generation, as far as protobuf is concerned: same names, other content."""

OURS = """
from elanus.proxy.wire.protos import common_pb2, milvus_pb2
sent = milvus_pb2.SearchRequest(collection_name="books").SerializeToString()
request = milvus_pb2.SearchRequest.FromString(sent)
assert request.collection_name == "books"
assert common_pb2.Status(code=5, error_code=common_pb2.UnexpectedError).code == 5
"""

INSTALLED_CLIENT = """
from pymilvus.grpc_gen import milvus_pb2 as theirs
assert theirs.SearchRequest(collection_name="books").collection_name == "books"
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_front_imports_neither_the_client_nor_pandas() -> None:
    done = run(
        "import sys; from elanus.storage.without_pandas import keep_pandas_out; keep_pandas_out(); "
        "import elanus.proxy.wire.server; "
        "print(sorted({'pymilvus', 'pandas'} & sys.modules.keys()))"
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.slow
@pytest.mark.parametrize("others", [ALTERED_FILES, INSTALLED_CLIENT], ids=["altered files", "pymilvus"])
@pytest.mark.parametrize("ours_first", [True, False])
def test_other_files_of_the_same_names_may_be_in_the_process(others: str, ours_first: bool) -> None:
    done = run(OURS + others + OURS if ours_first else others + OURS)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_in_one_pool_the_altered_files_would_collide() -> None:
    done = run(INSTALLED_CLIENT + ALTERED_FILES)
    assert "TypeError" in done.stderr


def test_the_service_is_the_one_that_clients_call() -> None:
    assert SERVICE.full_name == "milvus.proto.milvus.MilvusService"
    assert len(SERVICE.methods) == 144


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_those_of_the_client(name: str) -> None:
    """Field by field, with options, reserved numbers, enums and services: all but the comments."""
    theirs = importlib.import_module(f"pymilvus.grpc_gen.{name}_pb2").DESCRIPTOR.serialized_pb
    ours = importlib.import_module(f"elanus.proxy.wire.protos.{name}_pb2").DESCRIPTOR.serialized_pb
    assert FileDescriptorProto.FromString(ours) == FileDescriptorProto.FromString(theirs)


def test_the_generated_modules_are_those_of_the_proto_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/protos/generate.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made.keys() == {path.name for path in PROTOS.glob("*_pb2.py*")}
    outdated = [name for name, text in made.items() if (PROTOS / name).read_text() != text]
    assert outdated == [], "run make protos"


def test_a_module_has_the_names_that_its_type_stub_promises() -> None:
    for name in FILES:
        module = importlib.import_module(f"elanus.proxy.wire.protos.{name}_pb2")
        file = module.DESCRIPTOR
        promised = {*file.message_types_by_name, *file.enum_types_by_name, *file.extensions_by_name}
        promised |= {value for enum in file.enum_types_by_name.values() for value in enum.values_by_name}
        promised |= {f"{extension.upper()}_FIELD_NUMBER" for extension in file.extensions_by_name}
        assert promised <= vars(module).keys()


def test_requests_name_the_privilege_they_need() -> None:
    options = message_options(milvus_pb2.InsertRequest.DESCRIPTOR)
    needed = options.Extensions[common_pb2.privilege_ext_obj]
    assert needed.object_privilege == common_pb2.PrivilegeInsert
    assert needed.object_type == common_pb2.Collection
    assert needed.object_name_index == 3
    assert milvus_pb2.InsertRequest.DESCRIPTOR.fields_by_number[3].name == "collection_name"


def test_messages_without_a_privilege_have_none() -> None:
    options = message_options(milvus_pb2.SearchResults.DESCRIPTOR)
    assert not options.HasExtension(common_pb2.privilege_ext_obj)
