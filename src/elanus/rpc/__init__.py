"""The carriers of calls between roles, and what travels with a call.

A role calls an interface of `elanus.api` and does not know where the other role is: in the same process
(`local`), in this process but with the rules of a network (`local_port`), or in another one (`carrier`, on
gRPC; `remote` finds it). A call brings its remaining time (`deadlines`) and its trace (`tracing`). `serving`
is the gRPC server for clients.
"""
