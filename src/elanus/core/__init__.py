"""Pure decisions and plain values. No I/O; clocks and threads are passed in, so a simulator can replace them.

The modules by subject:

- Names and values: ids, timestamps, clock, limits, names, requests, quick_values, batches, pieces, quoted,
  json_texts, errors (of clients), faults (between components), invariants (what holds whatever fails)
- Types: types, vectors, vector_lists, sparse, structs, nullable, metrics, moments, geometry,
  geometry_form, json_column
- Schemas: schema, schema_rules, catalog, functions, minhash, embedding, partition_keys, sent_keys
- Changes of schemas and properties: field_changes, added_fields, dropped_fields, shown_keys,
  function_changes, property_changes, index_properties
- Rows: rows, row_faults, given_columns, given_types, partial_update, hashing, quarantine
- The log: channels, messages, oracle, ticks, packs
- Leases and signals: lease, change, begun, offload, backends
- Segments: segments, allocation, sealing, growing_memory, attempts, gc, path_digests, unreadable
- Rewriting segments: compaction, clustering, spheres, delta_merging, heirs
- Imports and jobs: imports, import_files, writes, jobs, build_speed, estimate
- Snapshots and clones: pins, moments_held, clones, past
- Nodes: nodes, ownership, placement, replicas, resource_groups, group_config, group_nodes, warmup
- Visibility in reads: consistency, visibility, time_to_live, row_sets
- Filters: lookup, documents, bloom, roaring
- Searches: reduce, ordering, grouping, buckets, json_keys, fusion, rankers, function_chains, highlights,
  term_statistics, target_recall, segment_filter, sphere_pruning, recall, projection
- Queries: aggregation
- Reads explained: trail, explanation, slow_requests
- Users and rights: access, access_names, access_grants, access_portions, access_backup, api_keys, key_rights,
  privileges
- Rates: rate_limits, rate_shares
"""
