"""Reads over many query nodes: asking, collecting answers, merging them."""
