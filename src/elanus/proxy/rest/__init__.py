"""The REST API: Milvus' RESTful API v2 on an HTTP port of its own.

An *endpoint* (`elanus.proxy.rest.endpoint`) is a path, the fields of its JSON body as a `msgspec.Struct`, and
a function. The table of all endpoints (`elanus.proxy.rest.table`) is what the HTTP application serves, and
what the OpenAPI document and docs/rest.md are made from.

Nothing is done here that gRPC does not do: every endpoint calls operations of `elanus.proxy.calls.Calls`,
with the same guard, trace, error path and metrics.

* Definitions (collections, indexes, users, ...) are the RPCs of the Milvus service, called by name. REST can
  do all that the RPCs can.
* Rows do not pass through protobufs. Insert, upsert, query and search are operations of their own
  (`elanus.proxy.rest.operations`) with the permissions of their RPCs: JSON rows become Arrow columns
  (`elanus.proxy.rest.rows`), and Arrow columns become JSON rows (`elanus.proxy.rest.values`).

`elanus.proxy.rest.app` is the HTTP application, `elanus.proxy.rest.server` the port and its thread.
"""
