"""Clients that import files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from elanus.api.imports import ImportRequest
from elanus.core.errors import CollectionNotFound, ImportRefused, InvalidParameter, PartitionNotFound
from elanus.core.ids import TaskID
from elanus.core.imports import ENDED, Duplicates, ImportState, WriteMode
from elanus.proxy.verbs.row_writes import write_partition
from elanus.sim.client_collections import KEYS, rows_of
from elanus.sim.client_verbs import ClientVerbs
from elanus.sim.truth import KEY
from elanus.sim.workload import Client

_ROWS_MAX = 15
_COMMON_KEYS_MAX = 3
_FIRST_KEY = 100_000
"""Keys from here on belong to imported rows; a few of them have keys that other clients use."""
_LOOK_S = 0.5
_LOOKS = 30
_CANCELLED = 0.25
_KEPT = 60
_TWO_STEPS_EVERY = 3
_LEFT_OPEN_EVERY = 2 * _TWO_STEPS_EVERY


class ImportClient(Client):
    """A client that imports files, and deletes imported rows by their keys.

    Every third import is made in two steps. Half of these the client commits, or aborts, as soon as it sees
    that the files are written, the others before its next import; what it leaves is settled in the end
    (`elanus.sim.quiescence`).
    """

    _imported: tuple[int, ...] = ()
    _left_open: tuple[TaskID, ...] = ()

    async def _import(self, name: str) -> str:
        """Import one or two files of new rows, and wait for the end of the task, or cancel it.

        Every other import replaces the rows that have its keys. Half of these have two rows of one key, of
        which the last one stays.
        """
        await self._settle_earlier()
        count = self._random.randint(1, _ROWS_MAX)
        values = [16 * self._number + place for place in range(count)]
        common = self._random.sample(range(KEYS), min(count, self._random.randint(0, _COMMON_KEYS_MAX)))
        keys = common + [_FIRST_KEY + value for value in values[len(common) :]]
        cut_at = self._random.randint(1, count)
        parts = [(keys[:cut_at], values[:cut_at]), (keys[cut_at:], values[cut_at:])]
        partition = self._partition(name)
        again = (keys[:1], [16 * self._number + _ROWS_MAX])
        self._system.trace.note(f"{self.name}: imports {keys} with {values} into {partition}", keys)

        async def start(verbs: ClientVerbs) -> TaskID:
            cached = await verbs.collection(name)
            upserts = self._number % 2 == 0 and not cached.view.schema.primary_field.auto_id
            doubles = upserts and self._number % 4 == 0
            files = {
                f"{self._number}-{place}.parquet": rows_of(*part, cached.view.schema)
                for place, part in enumerate([*parts, again] if doubles else parts)
                if part[0]
            }
            self._give(files)
            place = (cached.collection_id, name, write_partition(cached, partition), partition)
            start_import = self._system.roles_of_clients.data.start_import
            mode = WriteMode.UPSERT if upserts else WriteMode.APPEND
            rule = Duplicates.LAST if doubles else Duplicates.KEEP
            request = ImportRequest(
                *place, tuple(files), mode=mode, duplicates=rule, auto_commit=not self._in_two_steps()
            )
            return await verbs.define("import", lambda: start_import(request))

        task_id = await self._system.ask(self._proxy(), "import", start)
        self._imported = (*self._imported, *keys)[-_KEPT:]
        if self._in_two_steps():
            self._left_open = (*self._left_open, task_id)
        return f"import {task_id} {await self._end_of_task(task_id)}"

    def _give(self, files: Mapping[str, pa.RecordBatch]) -> None:
        """Put files where imports find them."""
        for name, rows in files.items():
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_batches([rows]), sink)
            self._system.users_files.put(name, sink.getvalue())
            self._judge.imports.files[name] = rows

    def _in_two_steps(self) -> bool:
        return self._number % _TWO_STEPS_EVERY == 0

    async def _settle_earlier(self) -> None:
        """Commit the tasks that earlier imports left open, and whose files are written."""
        for task_id in self._left_open:
            await self._commit(task_id)

    async def _commit(self, task_id: TaskID) -> None:
        """Commit a task, unless it has failed, or is not that far yet."""
        try:
            await self._system.roles_of_clients.data.commit_import(task_id)
        except (CollectionNotFound, PartitionNotFound, ImportRefused, InvalidParameter) as error:
            self._system.trace.note(f"{self.name}: import {task_id} is not committed: {error.message}")

    async def _end_of_task(self, task_id: TaskID) -> str:
        data = self._system.roles_of_clients.data
        cancels = self._random.random() < _CANCELLED
        looks = self._random.randrange(_LOOKS // 4) if cancels else _LOOKS
        for _ in range(looks):
            task = await data.import_task(task_id)
            if task.state in ENDED:
                return f"is {task.state.name}: {task.reason}"
            if task.state is ImportState.UNCOMMITTED and not cancels:
                if self._number % _LEFT_OPEN_EVERY == 0:
                    return "is left open"
                await self._commit(task_id)
            await asyncio.sleep(_LOOK_S)
        if cancels:
            await data.cancel_import(task_id)
            return ImportState.FAILED.name
        return "is not over yet"

    async def _delete_imported(self, name: str) -> str:
        if not self._imported:
            return "nothing was imported yet"
        keys = self._random.sample(self._imported, min(len(self._imported), self._random.randint(1, 12)))
        return await self._delete_by(name, f"{KEY} in {sorted(set(keys))}")
