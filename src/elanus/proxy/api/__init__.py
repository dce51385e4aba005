"""The proxy's verbs in domain terms: per subject one interface, and the values that it takes and returns.

The fronts (`elanus.proxy.wire`, `elanus.proxy.rest`) convert their messages to these values and back, and
call `elanus.proxy.api.verbs.Verbs`. `elanus.proxy.verbs` implements it and knows nothing of protobuf.
"""
