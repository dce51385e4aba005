"""The datanode role of a cluster: data node and index node around the process's Spark session."""

from __future__ import annotations

from typing import Any, cast

from elanus.core.errors import NotReady
from elanus.core.ids import NodeID
from elanus.meta.session import Session
from elanus.pipeline.on_demand import OnDemandSession
from elanus.rpc.local import LocalRole
from elanus.server.backends import log_url, store_url
from elanus.server.cluster.process import ClusterProcess
from elanus.server.data_dir import paths_of
from elanus.server.pipeline_role import (
    INTERFACES,
    PipelineDependencies,
    PipelineRole,
    SparkOnDemand,
    job_runner,
    until_dead,
)
from elanus.server.settings import Settings

__all__ = ["SparkOnDemand", "SparkPipeline"]


class SparkPipeline:
    """Implements `elanus.server.cluster.process.Pipeline`."""

    def __init__(self, settings: Settings, spark: OnDemandSession) -> None:
        self._settings = settings
        self._spark = spark
        self._runner = job_runner(settings.pipeline, spark)

    async def ended(self) -> None:
        """Return when Spark has ended."""
        await until_dead(self._spark)

    def interfaces(self, handle: LocalRole) -> list[tuple[type[Any], Any]]:
        return [(api, _Part(handle, api)) for api in INTERFACES]

    def build(self, process: ClusterProcess, session: Session) -> PipelineRole:
        paths = paths_of(self._settings.data_dir)
        needs = PipelineDependencies(
            settings=self._settings,
            session=self._spark,
            runner=self._runner,
            log=process.log,
            log_url=log_url(self._settings, paths),
            store_url=store_url(self._settings, paths),
            import_url=process.import_url,
            root=process.root,
            data=process.data,
            ledger=process.ledger,
            index=process.index,
        )

        def ended(error: BaseException | None) -> None:
            session.give_up(f"its work ended: {error}" if error else "another data node took its place")

        return PipelineRole(needs, session.node_id, process.address, ended)


class _Part:
    """One interface of the role instance that is currently running."""

    def __init__(self, handle: LocalRole, api: type[Any]) -> None:
        self._handle = handle
        self._api = api

    def meant_for(self, node_id: NodeID) -> _Part:
        """Implements `elanus.rpc.carrier.Addressed`."""
        self._handle.check(node_id)
        return self

    def __getattr__(self, method: str) -> Any:
        role = self._handle.instance
        if role is None:
            raise NotReady("the data node is joining the cluster; retry")
        return getattr(cast(PipelineRole, role).part(self._api), method)
