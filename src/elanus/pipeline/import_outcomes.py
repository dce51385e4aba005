"""The outcomes of finished tasks of an import, kept until the import ends.

A task puts its outcome, a list of files, into the object store when its files are there. If the driver, the
data node or the coordinator dies, the next try of the import finds it under the key of the task's plan
(`elanus.pipeline.import_plan.ImportPlan.key`) and does not run that task again. Garbage collection spares
outcomes and files while the import's record names the attempt of its first try; afterwards both are garbage
like any other that no manifest names.
"""

from __future__ import annotations

import msgspec

from elanus.api.imports import ImportOutcome
from elanus.core.attempts import number_in, stamped
from elanus.core.ids import TaskID
from elanus.pipeline.import_plan import ImportPlan
from elanus.storage.paths import import_outcome_path, import_outcomes_prefix
from elanus.storage.port import ObjectExists, ObjectStore

_decode = msgspec.msgpack.Decoder(ImportOutcome).decode  # at import: not thread-safe when made


def keep_outcome(store: ObjectStore, plan: ImportPlan, outcome: ImportOutcome) -> ImportOutcome:
    """Put a task's outcome into the store; return the one that is there.

    Spark may run a task twice at the same time: the first outcome counts, for this try of the import and for
    the next.
    """
    path = import_outcome_path(plan.task_id, stamped(plan.attempt, plan.key))
    try:
        store.put(path, msgspec.msgpack.encode(outcome))
    except ObjectExists:
        return _decode(store.get(path))
    return outcome


def kept_outcomes(store: ObjectStore, task_id: TaskID, first_attempt: int) -> dict[str, ImportOutcome]:
    """Return the outcomes of earlier tries by the keys of their plans; the files of all of them are there."""
    found = {}
    for info in store.list(import_outcomes_prefix(task_id)):
        name = info.path.rpartition("/")[2].removesuffix(".msgpack")
        if number_in(name) >= first_attempt:
            found[name.partition("-")[2]] = _decode(store.get(info.path))
    return found
