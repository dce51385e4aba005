"""Which calls may be sent again: every method of every interface has been thought about."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from role_interfaces import INTERFACES

from elanus.api.datacoord import DataCoordApi
from elanus.api.idempotency import is_repeatable

ACCESS = {
    "create_user", "set_password", "drop_user",
    "create_api_key", "drop_api_key",
    "describe_user", "describe_role",
    "create_role", "drop_role", "set_membership", "set_grant",
    "create_privilege_group", "drop_privilege_group", "change_privilege_group",
    "restore_access",
}  # fmt: skip
SENT_ONCE = {
    "AccessApi": ACCESS,
    "RootCoordApi": ACCESS | {
        "add_field", "add_struct", "add_function", "set_function", "drop_field", "drop_function",
        "alter_field",
        "truncate_collection",
        "create_database", "drop_database", "alter_database",
        "create_collection", "clone_collection", "drop_collection", "rename_collection", "alter_collection",
        "create_partition", "drop_partition",
        "create_alias", "drop_alias", "alter_alias",
    },
    "DataCoordApi": {
        "compact", "commit_range", "commit_compaction", "start_import",
        "create_snapshot", "pin_snapshot", "hold_source", "hold_backup",
    },
    "IndexCoordApi": {"create_index"},
    "QueryCoordApi": {
        "load_balance",
        "create_resource_group",
        "update_resource_groups",
        "drop_resource_group",
        "transfer_node",
        "transfer_replica",
    },
    "ImportNodeApi": {"import_files"},
    "IndexNodeApi": {"build_index"},
    "PipelineApi": {"cancel_job"},
    "JobLedgerApi": {"cancel_job"},
    "SnapshotApi": {"take_snapshot", "take_changes"},
    "ConnectorApi": {
        "changes", "snapshot", "start_import",
        "create_snapshot", "restore_snapshot", "clone_collection", "undrop_collection",
    },
    "BackupApi": {"hold", "restore_users", "complete"},
    "KeysApi": {"create_key", "drop_key"},
    "ServingProcessApi": {"open"},
}  # fmt: skip
"""All that a client must not send again by itself. A new method stands here until somebody marks it."""


def methods(api: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(api, inspect.iscoroutinefunction)}


@pytest.mark.parametrize("api", sorted(INTERFACES))
def test_the_methods_that_are_not_repeatable_are_these(api: str) -> None:
    interface = INTERFACES[api]
    assert {m for m in methods(interface) if not is_repeatable(interface, m)} == SENT_ONCE.get(api, set())


def test_a_method_that_the_interface_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError):
        is_repeatable(DataCoordApi, "polish")


def test_an_interface_that_inherits_keeps_the_marks() -> None:
    class Wider(DataCoordApi):
        async def polish(self) -> None: ...

    assert is_repeatable(Wider, "segments")
    assert not is_repeatable(Wider, "polish")
