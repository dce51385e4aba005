"""Bugs of compaction, planted as `planted` says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elanus.core.timestamps import Timestamp
from elanus.datacoord.manifests import Manifests
from elanus.datacoord.planner import Planner
from elanus.querycoord import next_version


def delete_during_a_compaction_lost(patch: pytest.MonkeyPatch) -> None:
    """The output counts as if it had all deletes folded in that lie in files when it is committed."""
    add_compacted = Manifests.add_compacted

    async def all_folded(self: Manifests, info: Any, output: Any, deletes_from: Any, name: str) -> Any:
        latest = max((log.file.ts_max for logs in self._deltas.values() for log in logs), default=0)
        return await add_compacted(self, info, output, Timestamp(max(latest, deletes_from)), name)

    patch.setattr(Manifests, "add_compacted", all_folded)


def folded_past_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Deletes count as folded in up to the present, though some lie in the log alone; nobody checks it."""
    patch.setattr("elanus.datacoord.planner.fold_bound", lambda now, retention_s, checkpoint: now)
    patch.setattr("elanus.datacoord.planner.fold_until", lambda bound, inputs, checkpoint: bound)


def segment_compacted_twice(patch: pytest.MonkeyPatch) -> None:
    """A segment is planned while another compaction has it, and no commit looks at its inputs."""
    patch.setattr(Planner, "_taken", lambda self: [])
    patch.setattr("elanus.datacoord.segment_merges._stale", lambda plan, inputs, vchannel: "")


def inputs_let_go_before_the_output_is_there(patch: pytest.MonkeyPatch) -> None:
    """A version drops the inputs of a compaction; their output comes with a later one."""
    decide = next_version.decide

    def early(wanted: Any, served: Any, *rest: Any) -> Any:
        outputs = frozenset(s for s, m in wanted.items() if m.parents and s not in served.named)
        fresh = outputs if served.named and not outputs & _SEEN else frozenset()
        _SEEN.update(outputs)
        return replace(decide(wanted, served, *rest), held=fresh, kept={}, late=fresh)

    _SEEN.clear()
    patch.setattr(next_version, "decide", early)


_SEEN: set[Any] = set()


def inputs_kept_next_to_the_output(patch: pytest.MonkeyPatch) -> None:
    """The version that brings the output does not take the inputs away, which de-duplication hides."""
    decide = next_version.decide

    def keeping(wanted: Any, served: Any, heirs: Any, *rest: Any) -> Any:
        kept = {s: serving.vchannel for s, serving in served.sealed.items() if heirs.one_of(s)}
        return replace(decide(wanted, served, heirs, *rest), held=frozenset(), kept=kept)

    patch.setattr(next_version, "decide", keeping)


def deltas_forgotten_too_early(patch: pytest.MonkeyPatch) -> None:
    """A delta log goes as soon as it is old enough, even if it is not folded in yet."""
    patch.setattr(
        "elanus.datacoord.compaction_facts.superseded_deltas",
        lambda deltas, segments, bound, concerned: [d for d in deltas if d.file.ts_max <= bound],
    )


def dead_rows_survive_a_merge(patch: pytest.MonkeyPatch) -> None:
    """A merge leaves deleted rows in, and says that they are folded in."""
    patch.setattr("elanus.pipeline.merge.dead_rows", lambda keys, row_ts, *_: np.zeros(len(row_ts), bool))


BUGS = (
    (
        "delete during a compaction lost",
        delete_during_a_compaction_lost,
        frozenset({"DEL1", "VIS2", "SEG1"}),
    ),
    (
        "folded past the checkpoint",
        folded_past_the_checkpoint,
        frozenset({"DEL1", "VIS2", "SEG1"}),
    ),
    ("segment compacted twice", segment_compacted_twice, frozenset({"SEG1", "VIS2"}), 12, 2),
    (
        "inputs let go too early",
        inputs_let_go_before_the_output_is_there,
        frozenset({"VIS1"}),
        12,
        3,
    ),
    ("inputs kept next to the output", inputs_kept_next_to_the_output, frozenset({"VIS2"}), 12, 2),
    (
        "deltas forgotten too early",
        deltas_forgotten_too_early,
        frozenset({"DEL1", "VIS2", "SEG1"}),
    ),
    (
        "dead rows survive a merge",
        dead_rows_survive_a_merge,
        frozenset({"DEL1", "VIS2", "SEG1"}),
    ),
)
"""Name, patch, the invariants under which it counts as found; how many seeds it may take, and the first."""
