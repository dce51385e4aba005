"""The vchannel records, indexed by collection, by owner, and by where their checkpoints are.

A vchannel is *dropped* once its data node has read the drop message. From then on it is not recovered, and
its record is kept only until its files are reclaimed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elanus.core.catalog import Checkpoint
from elanus.core.channels import pchannel_of
from elanus.core.ids import NO_NODE, CollectionID, NodeID
from elanus.core.schema import CollectionSchema
from elanus.core.timestamps import NO_TIMESTAMP, Timestamp
from elanus.datacoord.lowest_positions import LowestPositions
from elanus.datacoord.path_uses import PathUses, note_change
from elanus.datacoord.record_table import RecordTable


@dataclass(frozen=True, slots=True)
class Vchannel:
    """``deltas``: path of the manifest that lists the vchannel's delta logs, "" when it has none.

    ``dropping``: its collection is dropped. ``dropped``: when its data node had read the drop message,
    `NO_TIMESTAMP` before. ``owner``: the data node that follows it, `NO_NODE` for none yet. ``epoch`` grows
    with every change of owner, and is part of the owner's commits. ``quarantined``: how many entries of its
    log, up to the checkpoint, flushes left out because they do not fit the schema. ``lenders``: the vchannels
    whose delta logs its first list names, in a clone.
    """

    vchannel: str
    collection_id: CollectionID
    schema: CollectionSchema
    checkpoint: Checkpoint
    deltas: str = ""
    dropping: bool = False
    dropped: Timestamp = NO_TIMESTAMP
    owner: NodeID = NO_NODE
    epoch: int = 0
    quarantined: int = 0
    lenders: tuple[str, ...] = ()


class VchannelTable(RecordTable[str, Vchannel]):
    """``uses`` is notified of the lists of delta logs that come into force and go out of it."""

    prefix = "datacoord/vchannel/"
    kind = Vchannel

    def __init__(self, uses: PathUses) -> None:
        self._uses = uses
        self._vchannels: dict[str, Vchannel] = {}
        self._by_collection: dict[CollectionID, dict[str, None]] = {}
        self._owned: dict[str, Counter[NodeID]] = {}
        self._quarantined: set[str] = set()
        """The vchannels with entries in quarantine that are not dropped: none, as a rule."""
        self.positions = LowestPositions()
        """Where the checkpoints of the vchannels that are not dropped are."""

    def id_of(self, vchannel: Vchannel, /) -> str:
        return vchannel.vchannel

    def find(self, name: str) -> Vchannel | None:
        return self._vchannels.get(name)

    def live(self) -> list[Vchannel]:
        """Return those that are not dropped."""
        return [v for v in self._vchannels.values() if v.dropped == NO_TIMESTAMP]

    def dropped(self) -> list[Vchannel]:
        return [v for v in self._vchannels.values() if v.dropped != NO_TIMESTAMP]

    def names_of(self, collection_id: CollectionID) -> list[str]:
        """Return all vchannels of a collection that have a record, dropped ones too."""
        return list(self._by_collection.get(collection_id, ()))

    def of_collection(self, collection_id: CollectionID) -> list[Vchannel]:
        """Return those that are not dropped."""
        found = (self._vchannels[name] for name in self._by_collection.get(collection_id, ()))
        return [v for v in found if v.dropped == NO_TIMESTAMP]

    def owned(self) -> Mapping[str, Mapping[NodeID, int]]:
        """Return, by pchannel, how many of its vchannels each data node owns, `NO_NODE` for those without an
        owner. Dropped vchannels do not count."""
        return self._owned

    def owned_counts(self) -> Counter[NodeID]:
        """As `owned`, of all pchannels together."""
        return sum(self._owned.values(), Counter())

    def quarantined(self) -> dict[str, int]:
        """Return how many entries are in quarantine, by vchannel. Dropped vchannels do not count."""
        return {name: self._vchannels[name].quarantined for name in sorted(self._quarantined)}

    def show(self, vchannel: Vchannel, /) -> None:
        name = vchannel.vchannel
        known = self._vchannels.get(name)
        note_change(self._uses, _deltas_in_force(known), _deltas_in_force(vchannel))
        self._count_owner(known, -1)
        self._count_owner(vchannel, 1)
        if vchannel.dropped:
            self.positions.remove(name)
        else:
            self.positions.place(name, vchannel.checkpoint.position)
        if vchannel.quarantined and not vchannel.dropped:
            self._quarantined.add(name)
        else:
            self._quarantined.discard(name)
        self._vchannels[name] = vchannel
        self._by_collection.setdefault(vchannel.collection_id, {})[name] = None

    def forget(self, name: str, /) -> None:
        known = self._vchannels.pop(name, None)
        if known is None:
            return
        note_change(self._uses, _deltas_in_force(known), "")
        self._count_owner(known, -1)
        self._quarantined.discard(name)
        self.positions.remove(name)
        names = self._by_collection[known.collection_id]
        names.pop(name, None)
        if not names:
            del self._by_collection[known.collection_id]

    def _count_owner(self, vchannel: Vchannel | None, change: int) -> None:
        if vchannel is None or vchannel.dropped:
            return
        pchannel = pchannel_of(vchannel.vchannel)
        counts = self._owned.setdefault(pchannel, Counter())
        counts[vchannel.owner] += change
        if not counts[vchannel.owner]:
            del counts[vchannel.owner]
        if not counts:
            del self._owned[pchannel]


def _deltas_in_force(vchannel: Vchannel | None) -> str:
    return "" if vchannel is None or vchannel.dropped else vchannel.deltas
