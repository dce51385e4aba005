"""Identifiers. Each kind of id is a type of its own, so that one cannot pass for another."""

from __future__ import annotations

from typing import NewType

DatabaseID = NewType("DatabaseID", int)
CollectionID = NewType("CollectionID", int)
PartitionID = NewType("PartitionID", int)
SegmentID = NewType("SegmentID", int)
FieldID = NewType("FieldID", int)
IndexID = NewType("IndexID", int)
BuildID = NewType("BuildID", int)
NodeID = NewType("NodeID", int)
TaskID = NewType("TaskID", int)

ALL_PARTITIONS = PartitionID(0)
"""Where a message or request names no partition: it concerns every one."""
NO_SEGMENT = SegmentID(0)
NO_NODE = NodeID(0)
