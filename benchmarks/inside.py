"""A standalone server without ports and without a pipeline, in this process: its calls are called directly.

Ratios of processor time that clients, the network and other processes would hide can be measured on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from elanus.metrics import Metrics
from elanus.proxy.access.guard import AllowAll
from elanus.proxy.calls import Calls
from elanus.proxy.read_watch import ReadWatch
from elanus.proxy.verbs.proxy_verbs import ProxyVerbs
from elanus.proxy.wire.families import milvus_families
from elanus.proxy.wire.operations import milvus_operations
from elanus.proxy.wire.service import milvus_handlers
from elanus.proxy.wire.stubs import SERVICE, common_pb2, milvus_pb2, schema_pb2
from elanus.server.counters import RequestMeasures
from elanus.server.data_dir import DataDir
from elanus.server.online import Online
from elanus.server.settings import Settings
from elanus.server.settings_pipeline import PipelineSettings
from elanus.server.standalone import open_online

T = TypeVar("T")
COLLECTION, VECTOR = "digits", "vector"
_CHUNK_ROWS = 10_000
_LIMIT_S = 120.0

Floats = npt.NDArray[np.float32]


class Headers:
    """The context of a gRPC call with these headers."""

    def __init__(self, *headers: tuple[str, str]) -> None:
        self._headers = headers

    def invocation_metadata(self) -> Iterable[tuple[str, str]]:
        return self._headers

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return _LIMIT_S

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise RuntimeError(f"{code}: {details}")


class _Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class Inside:
    """A running server. ``watch``: decides which reads are followed."""

    def __init__(self, online: Online, watch: ReadWatch, loop: asyncio.AbstractEventLoop) -> None:
        verbs = ProxyVerbs(partial(online.current_proxy, "proxy"), online.pressure(), online.components)
        operations = milvus_operations(milvus_families(verbs, "STANDALONE"))
        self._loop = loop
        calls = Calls(operations, AllowAll(), RequestMeasures(Metrics()).observe, watch=watch)
        self._handlers = milvus_handlers(calls)
        self.online = online

    def handler(self, rpc: str) -> Any:
        """Return the gRPC handler of an RPC, which has the functions that decode and encode messages."""
        found = self._handlers.service(_Details(f"/{SERVICE.full_name}/{rpc}"))
        assert found is not None
        return found

    def call(self, rpc: str, request: Any, *headers: tuple[str, str]) -> Any:
        """Return the answer to a request. Raises `RuntimeError` for a failure."""
        answer = self.handler(rpc).unary_unary(request, Headers(*headers))
        status = answer.status if hasattr(answer, "status") else answer
        if status.code:
            raise RuntimeError(f"{rpc}: {status.reason}")
        return answer

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT_S)

    def fill(self, vectors: Floats, index: Mapping[str, str]) -> None:
        """Make the collection, with a key ``id``, load it, and insert the rows."""
        create = milvus_pb2.CreateCollectionRequest(
            collection_name=COLLECTION, schema=_schema(vectors.shape[1]).SerializeToString(), shards_num=1
        )
        self.call("CreateCollection", create)
        declared = [common_pb2.KeyValuePair(key=key, value=value) for key, value in index.items()]
        self.call(
            "CreateIndex",
            milvus_pb2.CreateIndexRequest(
                collection_name=COLLECTION, field_name=VECTOR, extra_params=declared
            ),
        )
        self.call(
            "LoadCollection", milvus_pb2.LoadCollectionRequest(collection_name=COLLECTION, replica_number=1)
        )
        for begin in range(0, len(vectors), _CHUNK_ROWS):
            self.call("Insert", _rows(begin, vectors[begin : begin + _CHUNK_ROWS]))


@contextmanager
def inside(data_dir: Path, watch: ReadWatch) -> Iterator[Inside]:
    """Start a server with this empty data directory; stop it at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop", daemon=True)
    thread.start()
    settings = Settings(data_dir=data_dir, pipeline=PipelineSettings(enabled=False))
    directory = DataDir(data_dir)

    def on_loop(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(_LIMIT_S)

    async def started() -> Online:
        online = await open_online(settings, directory, Metrics())
        await online.start()
        return online

    online = on_loop(started())
    try:
        yield Inside(online, watch, loop)
    finally:
        on_loop(online.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        directory.close()


def _schema(dim: int) -> Any:
    key = schema_pb2.FieldSchema(name="id", data_type=schema_pb2.Int64, is_primary_key=True)
    vector = schema_pb2.FieldSchema(name=VECTOR, data_type=schema_pb2.FloatVector)
    vector.type_params.add(key="dim", value=str(dim))
    return schema_pb2.CollectionSchema(name=COLLECTION, fields=[key, vector])


def _rows(first_key: int, vectors: Floats) -> Any:
    request = milvus_pb2.InsertRequest(collection_name=COLLECTION, num_rows=len(vectors))
    keys = request.fields_data.add(field_name="id", type=schema_pb2.Int64)
    keys.scalars.long_data.data.extend(range(first_key, first_key + len(vectors)))
    data = request.fields_data.add(field_name=VECTOR, type=schema_pb2.FloatVector)
    data.vectors.dim = vectors.shape[1]
    data.vectors.float_vector.data.extend(vectors.ravel().tolist())
    return request


def search_bytes(vector: Floats, limit: int = 10, **params: object) -> bytes:
    """Return a request for the nearest rows of one vector, as a client sends it."""
    holder = common_pb2.PlaceholderGroup()
    holder.placeholders.add(tag="$0", type=common_pb2.PlaceholderType.FloatVector, values=[vector.tobytes()])
    request = milvus_pb2.SearchRequest(
        collection_name=COLLECTION,
        dsl_type=common_pb2.DslType.BoolExprV1,
        placeholder_group=holder.SerializeToString(),
        nq=1,
        output_fields=["id"],
        use_default_consistency=False,
        consistency_level=common_pb2.ConsistencyLevel.Eventually,
    )
    sent = {"anns_field": VECTOR, "topk": limit, "params": "{}", "metric_type": "", **params}
    request.search_params.extend(
        common_pb2.KeyValuePair(key=key, value=str(value)) for key, value in sent.items()
    )
    return request.SerializeToString()
