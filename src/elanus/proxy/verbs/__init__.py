"""The verbs that clients call, in domain terms. Each runs in its request's thread."""
