"""Gains and costs of a cluster of several query nodes, on one machine."""
