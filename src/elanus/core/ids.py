"""Identifiers. Each kind of id has its own type, so that one cannot be mistaken for another."""

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
"""The value in messages and requests that name no partition and so concern every partition."""
NO_SEGMENT = SegmentID(0)
NO_NODE = NodeID(0)
