"""The index node role: runs each order as a Spark job and returns the job's outcome.

It keeps no state. If this process dies, the coordinator sees the call end and reassigns the build.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from elanus.api.indexnode import BuildIndex
from elanus.core.errors import Cancelled, Internal
from elanus.core.faults import Fault
from elanus.core.segments import IndexFile
from elanus.pipeline.index_build import IndexBuildPlan, index_build_job
from elanus.pipeline.jobs import JobRunner
from elanus.pipeline.port import JobCancelled


class IndexNode:
    """Implements `elanus.api.indexnode.IndexNodeApi`. ``threads``: how many processors a build may use;
    ``cpus``: how many of them Spark counts."""

    def __init__(
        self, runner: JobRunner, store_url: str, scratch_dir: Path, threads: int, cpus: int = 1
    ) -> None:
        self._runner = runner
        self._store_url = store_url
        self._scratch_dir = scratch_dir
        self._threads = threads
        self._cpus = cpus

    async def build_index(self, request: BuildIndex) -> IndexFile:
        """Run the build. Raises `Cancelled` for a cancelled job, `Internal` for a failed one, and any other
        `ElanusError` that the build raises."""
        plan = IndexBuildPlan(
            attempt=f"{request.version}-{uuid.uuid4().hex[:8]}",
            build_id=request.build_id,
            version=request.version,
            index_id=request.index_id,
            field=request.field,
            params=request.params,
            manifest=request.manifest,
            threads=self._threads,
            store_url=self._store_url,
            scratch_dir=str(self._scratch_dir),
            schema=request.schema,
        )
        cause = f"segment {request.manifest.segment_id} is flushed"
        try:
            (file,) = await self._runner.run(
                index_build_job(plan, self._cpus), cause, attempt=request.version
            )
        except JobCancelled as error:
            raise Cancelled(
                f"the build was cancelled ({error}); drop the index and create it again to build it"
            ) from error
        except Fault as error:
            raise Internal(f"the build failed: {error}") from error
        return file
