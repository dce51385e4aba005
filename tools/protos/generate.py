#!/usr/bin/env python3
"""Generate the Python modules and type stubs of Milvus's .proto files: ``make protos``.

``protoc`` (grpcio-tools) compiles the files, mypy-protobuf writes the type stubs. The modules themselves are
written here, because those of ``protoc`` register their files in the process's default descriptor pool::

    python tools/protos/generate.py [FOLDER]

FOLDER is where the files are written; without it, next to the .proto files.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

FOLDER = Path(__file__).parents[2] / "src/elanus/proxy/wire/protos"
PACKAGE = "elanus.proxy.wire.protos"

_TOP_LEVEL_IMPORT = re.compile(r"^import (\w+_pb2) as (\w+)$", re.MULTILINE)

_MODULE = '''\
"""The messages of {name}. Generated from it by ``make protos``: not to be edited."""

{imports}

globals().update(add_file({serialized!r}))
'''


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    with tempfile.TemporaryDirectory() as made:
        _compile(Path(made))
        for file in FileDescriptorSet.FromString((Path(made) / "files").read_bytes()).file:
            stem = _module(file.name)
            (target / f"{stem}.py").write_text(_module_text(file))
            (target / f"{stem}.pyi").write_text(_stub_text((Path(made) / f"{stem}.pyi").read_text()))


def _compile(target: Path) -> None:
    """Descriptors to the file ``files``, and the type stubs. A protoc that fails says why itself."""
    # The plugin is started through this interpreter: it may be installed where PATH does not lead.
    plugin = target / "protoc-gen-mypy"
    plugin.write_text(f"#!{sys.executable}\nfrom mypy_protobuf.main import main\nmain()\n")
    plugin.chmod(0o700)
    names = sorted(path.name for path in FOLDER.glob("*.proto"))
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{FOLDER}", f"--plugin={plugin}"]
    outputs = [f"--descriptor_set_out={target / 'files'}", f"--mypy_out=quiet:{target}"]
    subprocess.run([*protoc, *outputs, *names], check=True)


def _module(proto_name: str) -> str:
    return proto_name.removesuffix(".proto") + "_pb2"


def _module_text(file: FileDescriptorProto) -> str:
    """Importing a module imports those that it depends on first: their files must be in the pool."""
    ours = [_module(name) for name in file.dependency if not name.startswith("google/")]
    imports = [f"from {PACKAGE} import {module} as _{module}" for module in sorted(ours)]
    imports.append(f"from {PACKAGE}.pool import add_file")
    _drop_json_names(file.extension)
    _drop_json_names_of(file.message_type)
    return _MODULE.format(
        name=file.name, imports="\n".join(imports), serialized=file.SerializeToString(deterministic=True)
    )


def _drop_json_names_of(messages: Iterable[DescriptorProto]) -> None:
    """Compiled files leave out the JSON names that follow from the fields' own."""
    for message in messages:
        _drop_json_names(message.field)
        _drop_json_names_of(message.nested_type)


def _drop_json_names(fields: Iterable[FieldDescriptorProto]) -> None:
    for field in fields:
        field.ClearField("json_name")


def _stub_text(generated: str) -> str:
    """With the imports of the other files from our package: ``protoc`` takes them for top-level modules."""
    return _TOP_LEVEL_IMPORT.sub(rf"from {PACKAGE} import \1 as \2", generated)


if __name__ == "__main__":
    main()
