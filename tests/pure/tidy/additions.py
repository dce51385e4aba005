"""The toys that `test_adding` adds: two data types, an index kind, a setting, a job."""

from __future__ import annotations

from growth import Addition, Edit

TYPES: Addition = {
    "core/types.py": [
        Edit(r"^    INT8_VECTOR = 105\n", "    TERNARY_VECTOR = 107\n    DATE = 28\n"),
        Edit(
            r"^_ALL = \(\n",
            """\
    _fixed(DataType.DATE, "Date", Family.INTEGER, pa.int64()),
    _vector(
        DataType.TERNARY_VECTOR,
        "TernaryVector",
        VectorForm(
            Space.FLOATS,
            "int8",
            None,
            FLOAT_METRICS,
            Metric.COSINE,
            engine_name="VECTOR_INT8",
        ),
    ),
""",
        ),
    ],
    "proxy/wire/codecs.py": [
        Edit(
            r"^CODECS: .*\{\n",
            """\
    DataType.DATE: ScalarCodec("date_data", _numbers, _add_numbers, "date_data"),
    DataType.TERNARY_VECTOR: VectorCodec(
        "int8_vector",
        _narrow("int8"),
        _adds_bytes("int8_vector"),
        common_pb2.PlaceholderType.Value("Int8Vector"),
    ),
""",
        )
    ],
    "core/given_types.py": [
        Edit(
            r"^ACCEPTED: .*\{\n",
            """\
    DataType.DATE: Accepted(_fits_integer, _words("integers")),
    DataType.TERNARY_VECTOR: Accepted(_fits_bytes, _bytes_wanted),
""",
        )
    ],
    "pipeline/import_columns.py": [
        Edit(
            r"^CONVERT: .*\{\n",
            """\
    DataType.DATE: _as_it_is,
    DataType.TERNARY_VECTOR: _vectors_as_bytes,
""",
        )
    ],
    "spark/source.py": [
        Edit(
            r"^TYPES: .*\{\n",
            """\
    elanus_schema.DataType.DATE: LongType(),
    elanus_schema.DataType.TERNARY_VECTOR: ArrayType(FloatType(), containsNull=False),
""",
        )
    ],
}

INDEX: Addition = {
    "index/toy.py": '''\
"""Sees one row in ``stride`` only: wrong on purpose, so that its answers show who gave them."""

from __future__ import annotations

from typing import Any

import numpy as np

from elanus.core.types import Space, vectors_in
from elanus.index.hits import Hits
from elanus.index.masks import RowMask
from elanus.index.raw import RawVectors
from elanus.index.spec import IndexKind, IntParam


class ToyVectors(RawVectors):
    def _nearest(self, queries: Any, k: int, params: Any, mask: Any, threads: int) -> Hits:
        seen = np.zeros(self.rows, dtype=np.bool_)
        seen[:: params.number("stride", 1)] = True
        return self._exact.nearest(queries, k, RowMask.from_bool(seen), threads)


TOY = IndexKind(
    "TOY",
    vectors_in(Space.FLOATS),
    lambda spec, vectors, progress: ToyVectors(spec, vectors),
    ToyVectors.from_file,
    search_params={"stride": IntParam(1, 100, 10)},
)
''',
    "index/kinds.py": [
        Edit(r"^from elanus\.index\.ignored .*\n", "from elanus.index.toy import TOY\n"),
        Edit(r"kind\.name: kind\s+for kind in \(", "TOY, "),
    ],
}

SETTING: Addition = {
    "server/settings.py": [
        Edit(
            r'^class ProxySettings\(AccessSettings\):\n    """[^"]*"""\n',
            '\n    toy_rows: int = Field(default=3, ge=1)\n    """Rows of the toy."""\n',
        )
    ],
}

JOB: Addition = {
    "core/jobs.py": [Edit(r"^class JobKind\(StrEnum\):\n", '    TOY = "toy"\n')],
    "api/toy.py": '''\
"""The toy's order, and the interface that takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elanus.api.fencing import order_of
from elanus.api.idempotency import repeatable


@dataclass(frozen=True, slots=True)
class ToyOrder:
    numbers: tuple[int, ...]


class ToyApi(Protocol):
    @order_of("datacoord")
    @repeatable
    async def add(self, order: ToyOrder, cause: str) -> int:
        """The sum of the numbers. Raises `Cancelled`."""
        ...
''',
    "api/datanode.py": [
        Edit(r"^from elanus\.api\.gc import SweeperApi\n", "from elanus.api.toy import ToyApi\n"),
        Edit(r"^    sweeps: SweeperApi\n", "    toys: ToyApi\n"),
    ],
    "pipeline/toy.py": '''\
"""The toy's job: one Spark task per number."""

from __future__ import annotations

from elanus.api.toy import ToyOrder
from elanus.core.jobs import JobKind
from elanus.pipeline.port import Job, JobOutput


def toy_job(order: ToyOrder) -> Job[int, int]:
    return Job(JobKind.TOY, ("numbers",), toy_task, order.numbers, lambda sums: JobOutput((), len(sums), 0))


def toy_task(number: int) -> int:
    return number
''',
    "pipeline/jobs.py": [Edit(r"^        JobKind\.GC: .*\n", "        JobKind.TOY: 1,\n")],
    "datanode/toy.py": '''\
"""Takes the toy's orders."""

from __future__ import annotations

from elanus.api.toy import ToyOrder
from elanus.core.errors import Cancelled
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobCancelled
from elanus.pipeline.toy import toy_job


class SparkToys:
    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner

    async def add(self, order: ToyOrder, cause: str) -> int:
        try:
            return sum(await self._runner.run(toy_job(order), cause))
        except JobCancelled as error:
            raise Cancelled(f"the toy was cancelled: {error}") from error
''',
    "server/pipeline_role.py": [
        Edit(
            r"^from elanus\.api\.rootcoord .*\n",
            "from elanus.api.toy import ToyApi\nfrom elanus.datanode.toy import SparkToys\n",
        ),
        Edit(r"^INTERFACES: .*\(", "ToyApi, "),
        Edit(
            r"^        self\._sweeps = SparkSweeps\((\w+)\..*\n",
            r"        self._toys = SparkToys(\1.runner)" + "\n",
        ),
        Edit(r"^            SweeperApi: .*\n", "            ToyApi: self._toys,\n"),
    ],
    "server/builders.py": [
        Edit(r"^from elanus\.api\.gc import SweeperApi\n", "from elanus.api.toy import ToyApi\n"),
        Edit(
            r"^        peer\.client\(SweeperApi, .*\n",
            "        peer.client(ToyApi, None, issued_by=datacoord),\n",
        ),
    ],
    "sim/directories.py": [
        Edit(r"^from elanus\.api\.gc import SweeperApi\n", "from elanus.api.toy import ToyApi\n"),
        Edit(
            r"^            client\(self\._life, node, SweeperApi, .*\n",
            "            client(self._life, node, ToyApi, info.node_id),\n",
        ),
    ],
    "sim/pipeline.py": [
        Edit(r"^from elanus\.api\.gc import .*\n", "from elanus.api.toy import ToyOrder\n"),
        Edit(
            r"^    async def sweep\(.*\n        return .*\n",
            """
    async def add(self, order: ToyOrder, cause: str) -> int:
        return sum(order.numbers)
""",
        ),
    ],
}
