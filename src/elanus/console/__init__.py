"""The web console: pages on the HTTP port that show a server, and let a user search and administer it.

The pages are plain ES modules (``static/``) without a build step, and load nothing from other hosts. All
their data comes through `elanus.proxy.calls.Calls`, with the guard, the audit log and the metrics of any
other client: the endpoints of the REST API, RPCs that it lacks (`elanus.console.views`), and the status of
the server, an operation of its own (`elanus.console.status`). Only who calls is found out in another way: by
a session cookie (`elanus.console.sessions`).

`elanus.console.app` has the routes.
"""
