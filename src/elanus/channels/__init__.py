"""Query channels: adapters of `elanus.api.query_channel`, and the encoding of reads on them."""
