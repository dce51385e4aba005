"""Composition: settings become processes with roles in them, and ports for clients and operators.

- Settings: `settings` and its groups, read by `settings_load`; `policies` turns them into those of the roles
- Processes: `standalone` (``elanus serve``) around `online`, `pipeline_process`, `serving`, `cluster`
- Roles: `builders` builds each of them, `roles` starts and replaces them
- Ports: `fronts` (gRPC), `http_front` (REST and the console), `http_port` (metrics, health, status)
- Reports: `status`, `report`, `gauges`, `logs`, and `doctor`, which says what is wrong
"""
