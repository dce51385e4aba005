"""What the coordinators persist, watched: the steps of segments and the course of checkpoints."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from elanus.core.channels import pchannel_of
from elanus.core.ids import SegmentID
from elanus.core.invariants import InvariantBroken
from elanus.core.segments import SegmentInfo, may_become
from elanus.datacoord.state import Vchannel
from elanus.indexcoord.state import Build
from elanus.log.port import Position
from elanus.meta.port import Delete, Put
from elanus.sim.trace import Trace

_SEGMENTS = "datacoord/segment/"
_VCHANNELS = "datacoord/vchannel/"
_BUILDS = "indexcoord/build/"


class Records:
    """Fed by the metadata store. ``durable_end`` tells how far a pchannel is on stable storage."""

    def __init__(self, durable_end: Callable[[str], Position], trace: Trace) -> None:
        self._durable_end = durable_end
        self._trace = trace
        self.segments: dict[SegmentID, SegmentInfo] = {}
        self.vchannels: dict[str, Vchannel] = {}

    @staticmethod
    def is_ours(operation: Put | Delete) -> bool:
        """Whether it is about a segment or a vchannel."""
        return operation.key.startswith((_SEGMENTS, _VCHANNELS))

    def observe(self, operation: Put | Delete) -> None:
        """Raises `InvariantBroken`."""
        if isinstance(operation, Delete):
            self.vchannels.pop(operation.key.removeprefix(_VCHANNELS), None)
            if operation.key.startswith(_SEGMENTS):
                del self.segments[SegmentID(int(operation.key.removeprefix(_SEGMENTS)))]
        elif operation.key.startswith(_SEGMENTS):
            self._segment(msgspec.json.decode(operation.value, type=SegmentInfo))
        elif operation.key.startswith(_VCHANNELS):
            self._vchannel(msgspec.json.decode(operation.value, type=Vchannel))
        elif operation.key.startswith(_BUILDS):
            build = msgspec.json.decode(operation.value, type=Build)
            if build.file is not None:
                self._trace.count("indexes built")

    def _segment(self, info: SegmentInfo) -> None:
        known = self.segments.get(info.segment_id)
        if known is None or known.state is not info.state:
            self._trace.note(
                f"segment {info.segment_id} {info.state.name}, {info.rows} rows, {info.vchannel[-2:]}"
            )
            self._trace.count(f"segments {info.state.name.lower()}")
        if known is not None and known.state is not info.state and not may_become(known.state, info.state):
            raise InvariantBroken(
                "SEG2", f"segment {info.segment_id} went from {known.state.name} to {info.state.name}"
            )
        self.segments[info.segment_id] = info

    def _vchannel(self, info: Vchannel) -> None:
        known = self.vchannels.get(info.vchannel)
        checkpoint = info.checkpoint
        if known is None or known.checkpoint != checkpoint:
            self._trace.count("checkpoints moved")
            self._trace.note(
                f"checkpoint of {info.vchannel} at {checkpoint.ts}, position {checkpoint.position}"
            )
            end = self._durable_end(pchannel_of(info.vchannel))
            if checkpoint.position > end:
                raise InvariantBroken(
                    "CKPT2", f"{info.vchannel}: position {checkpoint.position}, durable are {end}"
                )
        if known is not None and (
            checkpoint.ts < known.checkpoint.ts or checkpoint.position < known.checkpoint.position
        ):
            raise InvariantBroken(
                "CKPT1", f"{info.vchannel}: from {known.checkpoint.ts} back to {checkpoint.ts}"
            )
        self.vchannels[info.vchannel] = info
